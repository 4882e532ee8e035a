"""Secrets over HTTP: whose they are, who may use them, and that no answer has a value.

Covers app.services.secrets.
"""

from typing import Any

import pytest

from tests.support.carillon import Carillon, Json, http_node

VALUE = "planted-value-1"
HOST = "api.example.com"
URL = f"https://{HOST}/hook"


async def secret(carillon: Carillon, name: str = "TOKEN", **values: Any) -> Json:
    """A secret for one host."""
    body = {"name": name, "value": VALUE, "allowed_hosts": [HOST], **values}
    made: Json = await carillon.call("POST", "/secrets/", 201, json=body)
    return made


async def user_id(carillon: Carillon) -> int:
    """Who somebody is."""
    me = await carillon.call("GET", "/me/")
    return int(me["id"])


async def names(carillon: Carillon) -> list[str]:
    """The names in somebody's list."""
    return [one["name"] for one in (await carillon.call("GET", "/secrets/"))["items"]]


def nodes(**config: Any) -> Json:
    """A workflow with one call."""
    call = http_node(config.pop("url", URL), **config)
    return {
        "name": "w",
        "nodes": [{"id": "start", "type": "trigger_schedule"}, call],
        "edges": [{"from": "start", "to": "call"}],
    }


async def refused(carillon: Carillon, **config: Any) -> list[tuple[str, str]]:
    """What is wrong with a call."""
    problem = await carillon.call("POST", "/workflows/", 422, json=nodes(**config))
    return [(error["field"], error["message"]) for error in problem["errors"]]


async def test_values_are_write_only(carillon: Carillon) -> None:
    """No answer has one: not when it is made, changed, listed or refused."""
    mia = await carillon.member()
    made = await secret(mia)
    expected = {"name": "TOKEN", "owner": await user_id(mia), "allowed_hosts": [HOST], "shared_with": []}
    assert expected == {key: made[key] for key in expected}
    answers = [
        await mia.request("GET", "/secrets/"),
        await carillon.request("GET", "/secrets/"),
        await mia.request("PUT", "/secrets/TOKEN/", json={"value": VALUE + "2"}),
        await mia.request("POST", "/secrets/", json={"name": "TOKEN", "value": VALUE}),
        await mia.request("POST", "/secrets/", json={"name": "9", "value": VALUE}),
        await mia.request("POST", "/secrets/", json={"name": "A", "value": [VALUE]}),
    ]
    assert [200, 200, 200, 409, 422, 422] == [answer.status_code for answer in answers]
    assert not any(VALUE in answer.text for answer in answers)
    assert VALUE not in repr(made)


async def test_each_user_has_names_of_their_own(carillon: Carillon) -> None:
    """A taken name is 409 for its owner alone; admins see everybody's; what is another's cannot be changed."""
    mia, tom = await carillon.member(), await carillon.member("tom")
    await secret(mia)
    await secret(tom)
    assert 409 == (await mia.request("POST", "/secrets/", json={"name": "TOKEN", "value": "x"})).status_code
    await secret(tom, "OTHER")
    assert (["TOKEN"], ["OTHER", "TOKEN"]) == (await names(mia), await names(tom))
    assert ["OTHER", "TOKEN", "TOKEN"] == await names(carillon)
    assert 404 == (await mia.request("DELETE", "/secrets/OTHER/")).status_code
    assert 403 == (await mia.request("DELETE", f"/secrets/OTHER/?owner={await user_id(tom)}")).status_code
    await carillon.call("DELETE", f"/secrets/OTHER/?owner={await user_id(tom)}", 204)
    await mia.call("DELETE", "/secrets/TOKEN/", 204)
    assert ([], ["TOKEN"]) == (await names(mia), await names(tom))


async def test_the_list_goes_on_by_a_cursor(carillon: Carillon) -> None:
    """Newest first."""
    for number in range(5):
        await secret(carillon, f"S{number}")
    first = await carillon.call("GET", "/secrets/?limit=3")
    rest = await carillon.call("GET", f"/secrets/?limit=3&cursor={first['next_cursor']}")
    assert ["S4", "S3", "S2", "S1", "S0"] == [one["name"] for one in (*first["items"], *rest["items"])]
    assert rest["next_cursor"] is None


async def test_put_makes_changes_and_lends(carillon: Carillon) -> None:
    """201 made, 200 there, what is left out stays; only an admin's may come without a value."""
    mia = await carillon.member()
    assert 404 == (await mia.request("PUT", "/secrets/NEW/", json={"allowed_hosts": ["*"]})).status_code
    made = await mia.call("PUT", "/secrets/NEW/", 201, json={"value": VALUE})
    assert [] == made["allowed_hosts"]
    changed = await mia.call("PUT", "/secrets/NEW/", json={"allowed_hosts": ["*.example.com"]})
    kept = await mia.call("PUT", "/secrets/NEW/", json={"shared_with": "all"})
    assert (["*.example.com"], ["*.example.com"], "all") == (
        changed["allowed_hosts"],
        kept["allowed_hosts"],
        kept["shared_with"],
    )
    lent = await carillon.call("PUT", "/secrets/LENT/", 201, json={"shared_with": [await user_id(mia)]})
    assert lent["allowed_hosts"] is None
    mine = next(one for one in (await mia.call("GET", "/secrets/"))["items"] if one["name"] == "LENT")
    assert mine["shared_to_you"]


async def test_others_see_not_with_whom_else_it_is_shared(carillon: Carillon) -> None:
    """It is marked as shared, and what else there is is the owner's business."""
    mia, tom = await carillon.member(), await carillon.member("tom")
    ids = [await user_id(mia), await user_id(tom)]
    await secret(carillon, shared_with=ids)
    (seen,) = (await mia.call("GET", "/secrets/"))["items"]
    assert (ids[:1], True) == (seen["shared_with"], seen["shared_to_you"])
    (own,) = (await carillon.call("GET", "/secrets/"))["items"]
    assert (ids, False) == (own["shared_with"], own["shared_to_you"])


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "1A"}, "name"),
        ({"name": "A\n"}, "name"),
        ({"name": "A" * 101}, "name"),
        ({"value": ""}, "value"),
        ({"value": "a\x00b"}, "value"),
        ({"allowed_hosts": ["http://a.com"]}, "allowed_hosts[0]"),
        ({"allowed_hosts": ["a.com", "*.*"]}, "allowed_hosts[1]"),
        ({"shared_with": [999_999]}, "shared_with[0]"),
        ({"shared_with": [2**70]}, "shared_with[0]"),
        ({"shared_with": "some"}, "shared_with"),
    ],
)
async def test_what_is_no_secret_is_refused(standing: Carillon, values: Json, field: str) -> None:
    """422 by field."""
    body = {"name": "TOKEN", "value": VALUE, **values}
    problem = await standing.call("POST", "/secrets/", 422, json=body)
    assert [field] == [error["field"] for error in problem["errors"]]
    assert 422 == (await standing.request("PUT", "/secrets/not-a-name/", json={"value": "x"})).status_code


async def test_a_member_names_only_what_is_theirs_or_shared(
    carillon: Carillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """422 by node and field; an admin's own environment, another's secret and what is nowhere look the same."""
    monkeypatch.setenv("CARILLON_SECRET_PAYROLL", "planted-payroll")
    mia, tom = await carillon.member(), await carillon.member("tom")
    await secret(tom, "TOMS")
    for name in ("PAYROLL", "TOMS", "NOWHERE"):
        found = await refused(mia, headers={"X-Key": f"Bearer {{{{ secret.{name} }}}}"})
        assert [("nodes[1].config.headers.X-Key", f"Node 'call': There is no secret '{name}' for you.")] == found
    await tom.call("PUT", "/secrets/TOMS/", json={"shared_with": [await user_id(mia)]})
    await mia.call("POST", "/workflows/", 201, json=nodes(headers={"X-Key": "{{ secret.TOMS }}"}))
    # A worker's environment may have what the API's has not.
    await carillon.call("POST", "/workflows/", 201, json=nodes(headers={"X-Key": "{{ secret.NOWHERE }}"}))
    lent = {"shared_with": [await user_id(mia)], "allowed_hosts": [HOST]}
    await carillon.call("PUT", "/secrets/PAYROLL/", 201, json=lent)
    await mia.call("POST", "/workflows/", 201, json=nodes(json={"key": "{{ secret.PAYROLL }}"}))


async def test_a_secret_is_written_for_its_hosts_only(carillon: Carillon) -> None:
    """Judged where scheme and host are literal; else when it runs."""
    mia = await carillon.member()
    await secret(mia)
    await secret(mia, "NOWHERE", allowed_hosts=[])
    for url in ("https://evil.example/", f"https://evil.example/?x={HOST}", f"https://{HOST}.evil.example/a"):
        (found,) = await refused(mia, url=url, json=["{{ secret.TOKEN }}"])
        assert ("nodes[1].config.json[0]", True) == (found[0], "may not be sent to" in found[1])
    (found,) = await refused(mia, url="https://evil.example/{{ secret.TOKEN }}")
    assert "nodes[1].config.url" == found[0]
    (found,) = await refused(mia, body="{{ secret.NOWHERE }}")
    assert "PUT /api/v1/secrets/NOWHERE/" in found[1]
    for url in (URL, f"https://{HOST}/{{{{ secret.TOKEN }}}}", "https://{{ trigger.payload.host }}/"):
        await mia.call("POST", "/workflows/", 201, json=nodes(url=url, body="{{ secret.TOKEN }}"))


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("core.log", {"message": "{{ secret.TOKEN }}"}, "message"),
        ("core.fail", {"message": "x {{ secret.TOKEN }}"}, "message"),
        (
            "scheduler_tools",
            {
                "tool": "create_schedule",
                "arguments": {"name": "{{ secret.TOKEN }}", "workflow_id": 1, "interval_seconds": 60},
            },
            "arguments.name",
        ),
        ("core.http_request", {"url": URL, "method": "{{ secret.TOKEN }}"}, "method"),
        ("core.http_request", {"url": URL, "json": ["{{ secret.TOKEN | upper }}"]}, "json[0]"),
        ("core.http_request", {"url": URL, "json": "{{ 'a' in secret.TOKEN }}"}, "json"),
        ("core.http_request", {"url": URL, "body": "{{ 'a' if secret.TOKEN else 'b' }}"}, "body"),
        ("core.http_request", {"url": URL, "body": "{{ secret }}"}, "body"),
    ],
)
async def test_where_and_how_a_secret_may_not_be_used(standing: Carillon, kind: str, config: Json, field: str) -> None:
    """Other actions, other fields, and everything but sending it: 422 by node and field, for admins too."""
    work = {"id": "work", "type": kind, "config": config}
    body = {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}, work], "edges": []}
    body["edges"] = [{"from": "start", "to": "work"}]
    problem = await standing.call("POST", "/workflows/", 422, json=body)
    assert [f"nodes[1].config.{field}"] == [error["field"] for error in problem["errors"]]


async def test_what_was_written_before_can_still_be_switched_off(
    carillon: Carillon, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old nodes are judged again when nodes are written, not when something else is."""
    monkeypatch.setenv("CARILLON_SECRET_TOKEN", VALUE)
    workflow = await carillon.call("POST", "/workflows/", 201, json=nodes(body="{{ secret.TOKEN }}"))
    monkeypatch.setenv("CARILLON_SECRET_TOKEN__HOSTS", "elsewhere.example")
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"active": False})
    again = {"nodes": workflow["nodes"], "edges": workflow["edges"]}
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", 422, json=again)


async def test_an_admin_cannot_put_their_secrets_into_a_members_workflow(
    carillon: Carillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workflow's owner decides what becomes of its nodes, so it is theirs that count."""
    monkeypatch.setenv("CARILLON_SECRET_TOKEN", VALUE)
    mia = await carillon.member()
    workflow = await mia.call("POST", "/workflows/", 201, json=nodes())
    changed = nodes(body="{{ secret.TOKEN }}")
    problem = await carillon.call("PATCH", f"/workflows/{workflow['id']}/", 422, json={"nodes": changed["nodes"]})
    assert "There is no secret 'TOKEN' for the owner of the workflow." in problem["errors"][0]["message"]


async def test_webhooks_are_held_to_the_same(carillon: Carillon) -> None:
    """By the names that a webhook has for its fields; other changes are not judged again."""
    mia = await carillon.member()
    hook = {"url": "https://evil.example/", "interval_minutes": 5, "headers": {"X-Key": "{{ secret.TOKEN }}"}}
    problem = await mia.call("POST", "/webhooks/", 422, json=hook)
    assert [("headers.X-Key", "There is no secret 'TOKEN' for you.")] == [
        (error["field"], error["message"]) for error in problem["errors"]
    ]
    await secret(mia)
    assert 422 == (await mia.request("POST", "/webhooks/", json=hook)).status_code
    made = await mia.call("POST", "/webhooks/", 201, json={**hook, "url": URL, "payload": {"a": "{{ secret.TOKEN }}"}})
    path = f"/webhooks/{made['id']}/"
    assert 422 == (await mia.request("PATCH", path, json={"url": "https://evil.example/"})).status_code
    await mia.call("DELETE", "/secrets/TOKEN/", 204)
    await mia.call("PATCH", path, json={"active": False})
    assert 422 == (await mia.request("PATCH", path, json={"payload": {"b": "{{ secret.TOKEN }}"}})).status_code


@pytest.mark.parametrize(
    "template",
    ["{{ a" + ".b" * 9000 + " }}", "{{ a[" + "9" * 19_000 + "] }}", "{{ a[" + "9" * 4000 + "] }}", "{{ self }}"],
)
async def test_templates_that_exhaust_the_reader_are_refused(standing: Carillon, template: str) -> None:
    """422, not 500."""
    ((field, _),) = await refused(standing, json={"a": template})
    assert "nodes[1].config.json.a" == field


async def test_huge_numbers_in_bodies_are_no_crash(standing: Carillon) -> None:
    """Whatever their length and wherever they stand: taken as they are, or refused."""
    named = f'"name": "s", "workflow_id": {(await standing.workflow())["id"]}'
    for digits in (30, 400, 4000, 5000, 19_000):
        number = "9" * digits
        wait = f'{{"id": "work", "type": "core.delay", "config": {{"seconds": {number}}}}}'
        call = f'{{"id": "work", "type": "core.http_request", "config": {{"url": "{URL}", "json": {number}}}}}'
        start = '{"id": "start", "type": "trigger_schedule"}'
        edges = '"edges": [{"from": "start", "to": "work"}]'
        bodies = [
            ("/schedules/", f'{{{named}, "interval_seconds": {number}}}'),
            ("/schedules/", f'{{{named}, "every": "5m", "trigger_payload": {{"n": {number}}}}}'),
            *(("/workflows/", f'{{"name": "w", "nodes": [{start}, {node}], {edges}}}') for node in (wait, call)),
        ]
        for path, body in bodies:
            answer = await standing.request("POST", path, content=body)
            assert answer.status_code in {201, 400, 422}, (path, digits, answer.text)
            if answer.status_code == 201:
                assert 200 == (await standing.request("GET", f"{path}{answer.json()['id']}/")).status_code
