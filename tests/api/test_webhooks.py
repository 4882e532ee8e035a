"""Webhooks over HTTP: what they are made of, and whose they are.

Covers app.services.webhooks.
"""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.carillon import Carillon, Json, moment

URL = "https://example.com/hook"


async def webhook(carillon: Carillon, **values: Any) -> Json:
    """A webhook that is called every five minutes, unless told otherwise."""
    when = {} if values.keys() & {"cron", "interval_minutes"} else {"interval_minutes": 5}
    made: Json = await carillon.call("POST", "/webhooks/", 201, json={"url": URL, **when, **values})
    return made


async def test_a_webhook_is_planned_when_it_is_made(carillon: Carillon) -> None:
    """From now on, with the defaults told."""
    made = await webhook(carillon)
    first = moment(made["next_execution_at"]) - moment(made["created_at"])
    assert timedelta(minutes=4, seconds=50) < first <= timedelta(minutes=5)
    assert ("POST", "UTC", True, None, "") == tuple(
        made[name] for name in ("method", "timezone", "active", "last_execution_at", "last_error")
    )
    assert made == await carillon.call("GET", f"/webhooks/{made['id']}/")


async def test_a_cron_expression_is_heeded_in_its_zone(carillon: Carillon) -> None:
    """And shown in the form that is stored."""
    made = await webhook(carillon, cron="0 9 * * MON", timezone="asia/tokyo")
    planned = moment(made["next_execution_at"])
    assert ("Asia/Tokyo", 0, 0, 0) == (made["timezone"], planned.weekday(), planned.hour, planned.minute)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"cron": "every now and then"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * *", "interval_minutes": 5}, "cron"),
        ({"cron": None}, "cron"),
        ({"interval_minutes": 0}, "interval_minutes"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "http://:80"}, "url"),
        ({"headers": {"Host": "x"}}, "url"),
        ({"headers": {"a b": "x"}}, "headers"),
        ({"payload": {"x": "{{ ''.__class__() }}"}}, "payload"),
        ({"colour": "red"}, "colour"),
        ({"last_error": "x"}, "last_error"),
    ],
)
async def test_what_is_not_valid_is_refused_by_its_name(standing: Carillon, values: Json, field: str) -> None:
    """When it is made, and nothing is stored."""
    when = {} if values.keys() & {"cron", "interval_minutes"} else {"interval_minutes": 5}
    problem = await standing.call("POST", "/webhooks/", 422, json={"url": URL, **when, **values})
    assert field in problem["errors"][0]["field"]
    assert 0 == (await standing.call("GET", "/webhooks/"))["total"]


async def test_changed_times_are_counted_from_now(carillon: Carillon) -> None:
    """One kind replaces the other; what is the same changes nothing; switched off, nothing is planned."""
    made = await webhook(carillon)
    same = await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"interval_minutes": 5, "active": True})
    assert made == same
    cron = await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"cron": "0 0 1 1 *"})
    assert (None, "0 0 1 1 *") == (cron["interval_minutes"], cron["cron"])
    assert (1, 1) == (moment(cron["next_execution_at"]).month, moment(cron["next_execution_at"]).day)
    off = await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"active": False})
    assert off["next_execution_at"] is None
    on = await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"active": True, "interval_minutes": 1})
    assert moment(on["next_execution_at"]) < moment(cron["next_execution_at"])
    await carillon.call("PATCH", f"/webhooks/{made['id']}/", 422, json={"interval_minutes": None})


async def test_a_webhook_is_its_owners(carillon: Carillon) -> None:
    """To others it does not exist; admins see all."""
    member = await carillon.member()
    other = await carillon.member("olaf")
    made = await webhook(member)
    for method in ("GET", "PATCH", "DELETE"):
        await other.call(method, f"/webhooks/{made['id']}/", 404)
    assert (0, 1, 1) == tuple([(await one.call("GET", "/webhooks/"))["total"] for one in (other, member, carillon)])
    await carillon.call("DELETE", f"/webhooks/{made['id']}/", 204)
    await member.call("GET", f"/webhooks/{made['id']}/", 404)
