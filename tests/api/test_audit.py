"""The audit log: who did what, from where, who sees it, and what refusals leave behind.

Covers app.api.audit, app.domain.audit, app.domain.client_addresses, app.persistence.audit,
app.persistence.tables.audit, app.services.audit, app.services.views.audit.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from app import wiring
from app.api.cookies import LOOPBACK_NAME
from app.config import Settings
from app.domain.access import Actor, Role
from app.domain.audit import AuditAction, ObjectType, Origin, Refusals, Via, refusals_event
from app.engine.housekeeping import Housekeeper
from app.persistence import audit, retention
from app.persistence.audit import MOST_ADDRESSES, ORIGIN, EventFilter
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part
from app.services.audit import MOST_COUNTED, MOST_WAITING, AuditService, RefusalCounter
from app.services.inputs import TokenInput, UserInput
from app.services.users import UserService
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json

FIELDS = [
    *("at", "actor", "on_behalf_of", "via", "action", "object_type", "object_id", "object_name", "changes", "note"),
    *("request_id", "address", "details"),
]
SAME = {"Sec-Fetch-Site": "same-origin"}
MINUTE = datetime(2026, 11, 18, 3, 0, tzinfo=UTC)


async def events(carillon: Carillon, **filters: Any) -> list[Json]:
    """Return the events that a client sees, newest first."""
    items: list[Json] = (await carillon.call("GET", "/audit/", params={"limit": 500, **filters}))["items"]
    return items


async def event(carillon: Carillon, action: str) -> Json:
    """Return the only event of an action."""
    (found,) = await events(carillon, action=action)
    return found


async def rows(database: Database) -> int:
    """Return how many events are stored."""
    async with database.transaction() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM audit_events"))).scalar_one())


async def login(carillon: Carillon, **body: str) -> str:
    """Log in, and return the header with the cookie."""
    response = await carillon.with_token("").request("POST", "/session/", json=body or {"token": ADMIN_TOKEN})
    assert 204 == response.status_code, response.text
    return f"{LOOPBACK_NAME}={response.cookies[LOOPBACK_NAME]}"


@asynccontextmanager
async def behind_proxy(settings: Settings) -> AsyncIterator[Carillon]:
    """An API that believes the tests about the address of a client."""
    async with serving(replace(settings, trusted_proxies="127.0.0.0/8")) as client:
        yield client


async def test_an_event_says_who_did_what_from_where(carillon: Carillon) -> None:
    """With exactly the fields that are promised."""
    user = await carillon.call("POST", "/users/", 201, json={"username": "mia"}, headers={"X-Request-Id": "build-7"})
    created = await event(carillon, "user_created")
    assert FIELDS == list(created)
    assert {
        "actor": "admin",
        "on_behalf_of": None,
        "via": "api",
        "action": "user_created",
        "object_type": "user",
        "object_id": str(user["id"]),
        "object_name": "mia",
        "changes": {},
        "note": "",
        "request_id": "build-7",
        "address": "127.0.0.1",
        "details": {"role": "member"},
    } == {name: value for name, value in created.items() if name != "at"}
    assert created["at"].endswith("Z")


async def test_what_happens_to_users_is_recorded(carillon: Carillon) -> None:
    """A change with what was before and after, and not at all if nothing differs."""
    user = await carillon.call("POST", "/users/", 201, json={"username": "mia"})
    path = f"/users/{user['id']}/"
    await carillon.call("PATCH", path, json={"role": "admin"})
    await carillon.call("PATCH", path, json={"role": "admin"})
    await carillon.call("PATCH", path, json={"disabled": True})
    await carillon.call("PATCH", path, json={"schedules": "pause"})
    await carillon.call("DELETE", path, 204)
    assert {"schedules": "pause"} == (await events(carillon, action="user_changed"))[0]["details"]
    found = [(one["action"], one["changes"], one["object_name"]) for one in await events(carillon, object_type="user")]
    assert [
        ("user_deleted", {}, "mia"),
        ("user_changed", {}, "mia"),
        ("user_changed", {"disabled": {"from": False, "to": True}}, "mia"),
        ("user_changed", {"role": {"from": "member", "to": "admin"}}, "mia"),
        ("user_created", {}, "mia"),
    ] == found


async def test_what_happens_to_tokens_is_recorded(carillon: Carillon) -> None:
    """By id and name, with scopes and end; never the text, nor its prefix."""
    token = await carillon.call("POST", "/tokens/", 201, json={"name": "ci", "scopes": ["read"]})
    rotated = await carillon.call("POST", f"/tokens/{token['id']}/rotate/", 201, json={"grace_seconds": 0})
    await carillon.call("DELETE", f"/tokens/{rotated['id']}/", 204)
    found = await events(carillon, object_type="token")
    assert [("token_deleted", rotated["id"]), ("token_rotated", rotated["id"]), ("token_created", token["id"])] == [
        (one["action"], int(one["object_id"])) for one in found
    ]
    assert {"ci"} == {one["object_name"] for one in found}
    assert {"kind": "api", "scopes": ["read"], "restrict": None, "expires_at": None} == found[2]["details"]
    assert {"replaces": token["id"], "grace_seconds": 0} == found[1]["details"]
    for secret in (token["token"], rotated["token"]):
        assert secret.split("_")[1] not in str(found)


async def test_secrets_and_keys_are_recorded_without_their_values(carillon: Carillon) -> None:
    """With the names of the fields that were given, and where the secret may go."""
    await carillon.call("POST", "/secrets/", 201, json={"name": "KEY", "value": "hush-1", "allowed_hosts": ["a.test"]})
    await carillon.call("PUT", "/secrets/KEY/", json={"value": "hush-2", "shared_with": "all"})
    await carillon.call("PUT", "/secrets/KEY/", json={})
    await carillon.call("PUT", "/secrets/OTHER/", 201, json={"value": "hush-3"})
    await carillon.call("DELETE", "/secrets/KEY/", 204)
    found = await events(carillon, object_type="secret")
    assert [
        ("secret_deleted", "KEY", {}),
        ("secret_created", "OTHER", {"fields": ["value"], "allowed_hosts": [], "shared_with": []}),
        ("secret_changed", "KEY", {"fields": ["shared_with", "value"]}),
        (
            "secret_created",
            "KEY",
            {"fields": ["allowed_hosts", "shared_with", "value"], "allowed_hosts": ["a.test"], "shared_with": []},
        ),
    ] == [(one["action"], one["object_name"], one["details"]) for one in found]
    assert {"shared_with": {"from": [], "to": "all"}} == found[2]["changes"]
    first = await carillon.call("GET", "/signing-key/")
    await carillon.call("GET", "/signing-key/")
    second = await carillon.call("POST", "/signing-key/rotate/")
    keys = await events(carillon, object_type="signing_key")
    assert [("signing_key_rotated", second["key_id"]), ("signing_key_created", first["key_id"])] == [
        (one["action"], one["object_id"]) for one in keys
    ]
    for value in ("hush", first["key"], second["key"]):
        assert value not in str([*found, *keys])


async def test_changed_settings_are_recorded_without_urls(carillon: Carillon) -> None:
    """URLs may hold keys; a change that changes nothing is none."""
    body = {"schedules_enabled": False, "sitemap_urls": ["https://a.test/?key=hush"]}
    await carillon.call("PATCH", "/settings/", json=body)
    await carillon.call("PATCH", "/settings/", json=body)
    changed = await event(carillon, "settings_changed")
    assert {"schedules_enabled": {"from": True, "to": False}} == changed["changes"]
    assert {"settings": ["schedules_enabled", "sitemap_urls"]} == changed["details"]
    assert "hush" not in str(changed)


async def test_logins_and_logouts_are_recorded(carillon: Carillon) -> None:
    """By token and by code, via the console, with the session that began or ended."""
    code = (await carillon.call("POST", "/session/codes/", 201))["code"]
    cookies = [await login(carillon), await login(carillon, code=code)]
    browser = carillon.with_token("")
    await browser.call("DELETE", "/session/", 204, headers={"Cookie": cookies[0], **SAME})
    made = await event(carillon, "session_code_created")
    assert ("admin", "session", None) == (made["actor"], made["object_type"], made["object_id"])
    assert code not in str(made)
    begun = await events(carillon, action="session_begun")
    assert ["code", "token"] == [one["details"]["by"] for one in begun]
    ended = await event(carillon, "session_ended")
    assert begun[1]["object_id"] == ended["object_id"]
    assert {("admin", "console", "127.0.0.1")} == {
        (one["actor"], one["via"], one["address"]) for one in [*begun, ended]
    }
    assert not any(cookie.partition("=")[2] in str(begun) for cookie in cookies)


async def test_a_change_of_a_browser_comes_via_the_console_and_the_next_request_does_not(carillon: Carillon) -> None:
    """One connection carries both."""
    cookie = await login(carillon)
    await carillon.with_token("").call(
        "POST", "/users/", 201, json={"username": "a"}, headers={"Cookie": cookie, **SAME}
    )
    await carillon.call("POST", "/users/", 201, json={"username": "b"})
    assert ["api", "console"] == [one["via"] for one in await events(carillon, action="user_created")]
    assert "session_id" in (await events(carillon, action="user_created"))[1]["details"]


async def test_a_command_is_recorded_as_one(database: Database, carillon: Carillon) -> None:
    """By the built-in admin, via the command line, from no address."""
    before = ORIGIN.set(Origin(Via.CLI))
    operator = Actor(0, "admin", Role.ADMIN)
    try:
        await UserService(database).create(operator, UserInput(username="mia"))
        await UserService(database).create_token_for(operator, "mia", TokenInput(name="t"))
    finally:
        ORIGIN.reset(before)
    found = await events(carillon, via="cli")
    assert [("token_created", "admin", None, None), ("user_created", "admin", None, None)] == [
        (one["action"], one["actor"], one["address"], one["request_id"]) for one in found
    ]


async def test_a_change_that_fails_leaves_no_event(carillon: Carillon) -> None:
    """The event is part of the change's transaction."""
    await carillon.call("POST", "/users/", 201, json={"username": "mia"})
    await carillon.call("POST", "/users/", 409, json={"username": "mia"})
    await carillon.call("DELETE", "/tokens/12345/", 404)
    await carillon.call("DELETE", "/secrets/NONE/", 404)
    assert ["user_created"] == [one["action"] for one in await events(carillon)]


async def test_requests_that_change_nothing_write_nothing(settings: Settings, database: Database) -> None:
    """Not even after the process has stored what it noted."""
    async with serving(settings) as carillon:
        for path in ("/me/", "/users/", "/tokens/", "/schedules/", "/audit/", "/settings/"):
            await carillon.call("GET", path)
    assert 0 == await rows(database)


async def test_members_see_what_they_did_and_what_concerns_them(carillon: Carillon) -> None:
    """And nothing of others, whatever they filter by."""
    mia, tom = await carillon.member(), await carillon.member("tom")
    await mia.call("POST", "/secrets/", 201, json={"name": "MINE", "value": "x"})
    await tom.call("POST", "/secrets/", 201, json={"name": "HIS", "value": "x"})
    await carillon.call("POST", "/secrets/", 201, json={"name": "ADMINS", "value": "x"})
    seen = [(one["actor"], one["action"], one["object_name"]) for one in await events(mia)]
    assert [
        ("mia", "secret_created", "MINE"),
        ("admin", "token_created", "t"),
        ("admin", "user_created", "mia"),
    ] == seen
    assert [] == await events(mia, actor="tom")
    assert [] == await events(mia, action="settings_changed")
    other = (await events(tom, object_type="user"))[0]["object_id"]
    assert [] == await events(mia, object_type="user", object_id=other)
    assert 7 == len(await events(carillon))


async def test_filters_narrow_the_list(carillon: Carillon) -> None:
    """Each alone and all together."""
    mia = await carillon.member()
    token = await mia.call("POST", "/tokens/", 201, json={"name": "x"})
    cookie = await login(carillon)
    assert {"mia"} == {one["actor"] for one in await events(carillon, actor="mia")}
    assert {"console"} == {one["via"] for one in await events(carillon, via="console")}
    (found,) = await events(carillon, object_type="token", object_id=str(token["id"]))
    assert ("mia", "token_created") == (found["actor"], found["action"])
    assert 2 == len(await events(carillon, action="token_created"))
    both = {"from": found["at"], "to": found["at"]}
    assert [found] == await events(carillon, **both)
    assert [found] == await events(
        carillon,
        actor="mia",
        via="api",
        object_type="token",
        object_id=found["object_id"],
        action="token_created",
        **both,
    )
    assert "session_begun" in {one["action"] for one in await events(carillon, **{"from": found["at"]})}
    assert [] == await events(carillon, to="2020-01-01T00:00:00Z")
    assert cookie


@pytest.mark.parametrize(
    "query",
    ["actr=x", "via=telepathy", "object_type=cat", "action=sang", "from=5", "to=yesterday", "cursor=xxxx", "limit=0"],
)
async def test_unknown_filters_and_values_are_422(standing: Carillon, query: str) -> None:
    """With the name of the parameter."""
    problem = await standing.call("GET", f"/audit/?{query}", 422)
    assert query.partition("=")[0] == problem["errors"][0]["field"]


@pytest.mark.parametrize("name", ["mia", "admin"])
async def test_pages_follow_each_other_without_a_gap(carillon: Carillon, name: str) -> None:
    """For an admin and for a member, whose events come from two indexes."""
    mia = await carillon.member()
    for number in range(5):
        await mia.call("POST", "/secrets/", 201, json={"name": f"S{number}", "value": "x"})
    viewer = carillon if name == "admin" else mia
    cursor, seen = None, []
    while True:
        page = await viewer.call("GET", "/audit/", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        seen += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert await events(viewer) == seen
    assert 7 == len(seen)


async def test_refusals_are_one_row_for_an_address_and_a_minute(settings: Settings, database: Database) -> None:
    """However many there are, in however many processes; no token stands in it."""
    made_up = "carillon_0123456789abcdef_nothing"
    for _ in range(2):
        async with behind_proxy(settings) as carillon:
            for _ in range(10):
                headers = {"X-Forwarded-For": "192.0.2.7", "Authorization": f"Bearer {made_up}"}
                await carillon.with_token("").call("GET", "/me/", 401, headers=headers)
            await carillon.with_token("").call("POST", "/session/", 401, json={"token": made_up})
    async with serving(settings) as carillon:
        found = await events(carillon, action="authentication_refused")
    by_address: dict[str, int] = {}
    for one in found:
        by_address[one["address"]] = by_address.get(one["address"], 0) + one["details"]["count"]
        assert (None, "api", "address", one["address"]) == (
            one["actor"],
            one["via"],
            one["object_type"],
            one["object_id"],
        )
    # A minute may end in between.
    assert {"192.0.2.7": 20, "127.0.0.1": 2} == by_address
    assert len(found) <= 4
    assert "0123456789abcdef" not in str(found)
    assert await rows(database) == len(found)


async def test_a_flood_from_many_addresses_fills_neither_table_nor_memory(settings: Settings) -> None:
    """The first addresses are counted one by one, all others together; none is lost."""
    async with behind_proxy(settings) as carillon:
        anonymous = carillon.with_token("")

        async def attack(number: int) -> None:
            headers = {"X-Forwarded-For": f"198.51.{number // 200}.{number % 200}"}
            await anonymous.call("GET", "/me/", 401, headers=headers)

        for start in range(0, 400, 40):
            await asyncio.gather(*(attack(number) for number in range(start, start + 40)))
    async with serving(settings) as carillon:
        found = await events(carillon, action="authentication_refused")
    minutes = {one["at"] for one in found}
    assert 400 == sum(one["details"]["count"] for one in found)
    assert len(found) <= (MOST_COUNTED + 1) * len(minutes)
    assert "other addresses" in {one["object_name"] for one in found}


def test_the_counter_is_bounded_and_loses_nothing() -> None:
    """While the database is away over many minutes, too."""
    counter = RefusalCounter()
    total = 0
    for minute in range(60):
        at = MINUTE + timedelta(minutes=minute)
        for address in range(300):
            counter.count(Refusals(action=AuditAction.AUTHENTICATION_REFUSED, minute=at, address=str(address)))
            total += 1
        counter.put_back(counter.take())
    counts = counter.take()
    assert total == sum(counts.values())
    assert len(counts) <= MOST_WAITING + 60
    assert {} == counter.take()


def test_processes_give_the_same_refusals_the_same_id() -> None:
    """Another minute, address, token or session has another."""
    mia = Actor(7, "mia", Role.MEMBER, token_id=3)
    refused, denied = AuditAction.AUTHENTICATION_REFUSED, AuditAction.SCOPE_DENIED
    different = [
        Refusals(action=refused, minute=MINUTE, address="192.0.2.1"),
        Refusals(action=refused, minute=MINUTE, address="192.0.2.2"),
        Refusals(action=refused, minute=MINUTE + timedelta(minutes=1), address="192.0.2.1"),
        Refusals(action=refused, minute=MINUTE),
        Refusals(action=denied, minute=MINUTE, actor=mia),
        Refusals(action=denied, minute=MINUTE, actor=mia, scope="write"),
        Refusals(action=denied, minute=MINUTE, actor=replace(mia, token_id=4)),
        Refusals(action=denied, minute=MINUTE, actor=replace(mia, session_id=4)),
        Refusals(action=denied, minute=MINUTE),
    ]
    assert len(different) == len({refusals_event(one, 1).id for one in different})
    assert all(refusals_event(one, 1).id == refusals_event(one, 5).id for one in different)


async def test_denied_calls_are_one_row_for_a_token_a_reason_and_a_minute(settings: Settings) -> None:
    """Wherever the call is refused; its owner sees it. The missing scope is named, also if the role lacks it."""
    async with serving(settings) as carillon:
        mia = await carillon.member()
        token = await mia.call("POST", "/tokens/", 201, json={"name": "narrow", "scopes": ["read"]})
        narrow = mia.with_token(token["token"])
        for _ in range(3):
            await narrow.call("POST", "/workflows/", 403, json={})
        own = (await mia.call("GET", "/tokens/"))["items"][0]
        await narrow.call("DELETE", f"/tokens/{own['id']}/", 403)
        restricted = await mia.call("POST", "/tokens/", 201, json={"name": "one", "restrict": {"workflow_ids": [1]}})
        await mia.with_token(restricted["token"]).call("GET", "/secrets/", 403)
        await mia.call("GET", "/users/", 403)
    async with serving(settings) as carillon:
        found = await events(carillon.with_token(token["token"]), action="scope_denied")
        others = await events(carillon.with_token(token["token"]), action="access_denied")
    assert [("restricted", 1)] == [(one["details"]["code"], one["details"]["count"]) for one in others]
    (of_role,) = [one for one in found if one["details"]["scope"] == "admin"]
    assert 1 == of_role["details"]["count"]
    found.remove(of_role)
    assert 4 == sum(one["details"]["count"] for one in found)
    assert {("mia", "token", str(token["id"]))} == {
        (one["actor"], one["object_type"], one["object_id"]) for one in found
    }
    assert {"write"} == {one["details"]["scope"] for one in found}
    assert len(found) <= 2


async def test_refusals_wait_while_the_database_is_away(settings: Settings, database: Database) -> None:
    """And are stored when it is back."""
    away = Database("postgresql+asyncpg:///nowhere?host=/nowhere", pool_size=1)
    service = AuditService(away)
    service.count_refusal("192.0.2.1")
    await service.store_refusals()
    await away.close()
    service._database = database
    await service.store_refusals()
    assert 1 == await rows(database)


async def used_from(carillon: Carillon, token: str, *addresses: str) -> None:
    """Use a token from these addresses."""
    for address in addresses:
        await carillon.with_token(token).call("GET", "/me/", headers={"X-Forwarded-For": address})


async def test_a_token_used_from_a_new_address_is_recorded_once(settings: Settings) -> None:
    """To the /64 in IPv6; also if another process knows the address already. The first address is marked."""
    async with behind_proxy(settings) as carillon:
        token = await carillon.call("POST", "/tokens/", 201, json={"name": "ci"})
        await used_from(carillon, token["token"], "192.0.2.1", "192.0.2.1")
    async with behind_proxy(settings) as carillon:
        await used_from(carillon, token["token"], "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1")
    async with serving(settings) as carillon:
        found = await events(carillon, action="token_used_from_new_address")
    assert {("192.0.2.1", True), ("2001:db8::/64", False), ("2001:db8:1::/64", False)} == {
        (one["address"], one["details"]["is_first"]) for one in found
    }
    assert 3 == len(found)
    assert {("admin", "api", "token", str(token["id"]), "ci")} == {
        (one["actor"], one["via"], one["object_type"], one["object_id"], one["object_name"]) for one in found
    }


@pytest.mark.parametrize("by", ["session", "admin token"])
async def test_a_user_without_a_stored_token_at_a_new_address_is_recorded_once(settings: Settings, by: str) -> None:
    """The first address is none that is new; the next ones are."""
    async with behind_proxy(settings) as carillon:
        browser = {"Cookie": await login(carillon)} if by == "session" else carillon._headers
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"):
        async with behind_proxy(settings) as carillon:
            await carillon.with_token("").call("GET", "/me/", headers={**browser, "X-Forwarded-For": address})
    async with serving(settings) as carillon:
        found = await events(carillon, action="user_seen_at_new_address")
    known = {("admin", "user", "192.0.2.2")} | ({("admin", "user", "192.0.2.1")} if by == "session" else set())
    assert known == {(one["actor"], one["object_type"], one["address"]) for one in found}
    assert len(known) == len(found)


async def test_of_a_token_the_newest_addresses_are_known(settings: Settings, database: Database) -> None:
    """So that a token that travels takes bounded room."""
    async with serving(settings) as carillon:
        token = await carillon.call("POST", "/tokens/", 201, json={"name": "ci"})
    for hour in range(3):
        seen_at = MINUTE + timedelta(hours=hour)
        used = {(token["id"], f"192.0.{hour}.{number}"): seen_at for number in range(MOST_ADDRESSES - 5)}
        async with database.transaction() as connection:
            await audit.note_addresses(connection, used)
    async with database.transaction() as connection:
        known = (await connection.execute(text("SELECT address FROM token_addresses"))).scalars().all()
    assert MOST_ADDRESSES == len(known)
    assert MOST_ADDRESSES - 5 == len([one for one in known if one.startswith("192.0.2.")])


async def test_a_deleted_token_has_no_addresses(settings: Settings, database: Database) -> None:
    """Nor does storing a use of it fail."""
    async with behind_proxy(settings) as carillon:
        token = await carillon.call("POST", "/tokens/", 201, json={"name": "ci"})
        await used_from(carillon, token["token"], "192.0.2.1")
        await carillon.call("DELETE", f"/tokens/{token['id']}/", 204)
    async with database.transaction() as connection:
        assert 0 == (await connection.execute(text("SELECT count(*) FROM token_addresses"))).scalar_one()
    assert 2 == await rows(database)


@pytest.mark.parametrize("path", ["/api/v1/me/", "/api/v1/nothing/", "/health/live", "/x"])
async def test_every_answer_has_the_id_of_its_request(standing: Carillon, path: str) -> None:
    """The client's own if it is sound, else a new one for each request."""

    async def answered(given: str | None) -> httpx.Response:
        return await standing.raw("GET", path, headers={} if given is None else {"X-Request-Id": given})

    assert "a.b:c_d-1" == (await answered("a.b:c_d-1")).headers["x-request-id"]
    made = [(await answered(given)).headers["x-request-id"] for given in (None, "", "a b", "x" * 129, "<script>")]
    assert 5 == len(set(made))
    assert all(re.fullmatch(r"[0-9a-f]{32}", one) for one in made)


async def test_log_lines_of_a_request_have_its_id(carillon: Carillon) -> None:
    """So that a line and an event are found by each other."""
    with capture_logs(processors=[merge_contextvars]) as lines:
        await carillon.call("POST", "/users/", 201, json={"username": "mia"}, headers={"X-Request-Id": "build-7"})
    assert ["build-7"] == [line["request_id"] for line in lines if line["event"] == "user_created"]


async def test_storing_goes_on_after_a_failure() -> None:
    """A defect is logged, and the next time is tried; at the end it is stored once more."""
    calls: list[int] = []
    stored = asyncio.Event()

    async def store() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise ValueError("boom")
        stored.set()

    with capture_logs() as lines:
        async with asyncio.timeout(60), wiring._storing(store, 0.01):
            await stored.wait()
    assert ["ValueError"] == [line["error"] for line in lines if line["event"] == "notes_not_stored"]
    assert len(calls) >= 3


async def test_lists_read_an_index_in_its_order(database: Database) -> None:
    """For each filter and for members: nothing is sorted, and no event of others is read."""
    fill = text(
        "INSERT INTO audit_events (id, at, actor_id, actor, owner_id, via, action, object_type, object_id, "
        "object_name, changes, note, details) "
        "SELECT gen_random_uuid(), now(), n % 500, 'u' || n % 500, n % 500, 'api', "
        "CASE WHEN n % 500 = 0 THEN 'user_deleted' ELSE 'user_created' END, 'user', n % 500, '', '{}', '', '{}' "
        "FROM generate_series(1, 20000) AS n"
    )
    async with database.transaction() as connection:
        await connection.execute(fill)
        await connection.execute(text("ANALYZE audit_events"))
        admin, mia = Actor(1, "admin", Role.ADMIN), Actor(7, "u7", Role.MEMBER)
        for viewer, wanted, expected in (
            (admin, EventFilter(actor="u7"), 40),
            (admin, EventFilter(object_type=ObjectType.USER, object_id="7"), 40),
            (admin, EventFilter(action=AuditAction.USER_DELETED), 40),
            (mia, EventFilter(), 40),
        ):
            before = await read_rows(connection)
            page = await audit.page(connection, viewer, wanted, Part(100, counts=False))
            assert expected == len(page.items)
            assert await read_rows(connection) - before <= 10 * expected


async def read_rows(connection: Connection) -> int:
    """Return how many rows of the events this transaction has read so far, by scans and by indexes."""
    counted = text(
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables "
        "WHERE relname LIKE 'audit_events_%'"
    )
    return int((await connection.execute(counted)).scalar_one())


async def test_old_events_are_dropped_by_the_week(database: Database, carillon: Carillon) -> None:
    """Also those for which there was no partition. Younger ones stay."""
    await carillon.call("POST", "/users/", 201, json={"username": "mia"})
    async with database.transaction() as connection:
        now = await database_now(connection)
        for days in (60, 1):
            at = (now - timedelta(days=days)).replace(second=0, microsecond=0)
            one = Refusals(action=AuditAction.AUTHENTICATION_REFUSED, minute=at, address="192.0.2.1")
            await audit.add_counts(connection, [refusals_event(one, 1)])
    week = retention.Week("audit_events", retention.week_of(now - timedelta(days=100)))
    await retention.make_week(database, week)
    async with database.transaction() as connection:
        assert week in await retention.old_weeks(connection, now - timedelta(days=30), retention.AUDIT)
    await Housekeeper(database, 30, audit_days=0).keep_weeks()
    assert 2 == len(await events(carillon, action="authentication_refused")), "it has a time of its own"
    await Housekeeper(database, 0, audit_days=30).keep_weeks()
    async with database.transaction() as connection:
        assert week not in await retention.old_weeks(connection, now, retention.AUDIT)
    assert {"user_created": 1, "authentication_refused": 1} == {
        action: len(await events(carillon, action=action)) for action in ("user_created", "authentication_refused")
    }
