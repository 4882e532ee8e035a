"""Notices reach one owner whatever the targets of another do, and a pile of them comes as one.

Covers app.clock, app.persistence.notifications.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.config import Settings
from app.domain.backoff import DELIVERY_BACKOFF
from app.engine import notifications as sending
from app.persistence import notifications as stored
from app.persistence.database import Database
from app.persistence.notifications import Bounds
from app.wiring import wire_worker
from tests.support.carillon import PATIENCE_SECONDS, Carillon, Json, until, working
from tests.support.http_sink import Sink

LEASE_SECONDS = 60.0
_NOTIFY = text(
    "INSERT INTO notifications (user_profile_id, url, events, active) SELECT :owner, :url, '[]', true "
    "FROM generate_series(1, :count) RETURNING id"
)
_WRITE = text(
    "INSERT INTO deliveries (notification_id, event, data, created_at, next_attempt_at) "
    "SELECT :notification, 'run.failed', jsonb_build_object('number', n), clock_timestamp(), "
    "clock_timestamp() - make_interval(secs => :ago + (:count - n) * 0.001) FROM generate_series(1, :count) AS n"
)


async def notifications(database: Database, owner: Carillon, url: str, count: int = 1) -> list[int]:
    """So many notifications of an owner, to one URL."""
    owner_id = (await owner.call("GET", "/me/"))["id"]
    async with database.transaction() as connection:
        made = await connection.execute(_NOTIFY, {"owner": owner_id, "url": url, "count": count})
        return list(made.scalars())


async def notices(database: Database, notification: int, count: int = 1, seconds_ago: float = 0) -> None:
    """So many notices that wait for one notification."""
    async with database.transaction() as connection:
        await connection.execute(_WRITE, {"notification": notification, "count": count, "ago": seconds_ago})


async def rows(database: Database) -> list[Any]:
    """All deliveries as they stand."""
    query = "SELECT *, next_attempt_at - clock_timestamp() AS pause FROM deliveries ORDER BY id"
    async with database.transaction() as connection:
        return list(await connection.execute(text(query)))


async def deliver(settings: Settings) -> int:
    """Deliver what is due; how many deliveries were tried."""
    async with wire_worker(settings) as parts:
        return await parts.runtime._notification_sender.run_all(PATIENCE_SECONDS)


async def refuse(_request: web.Request) -> web.StreamResponse:
    """Answer with an error."""
    return web.Response(status=500)


async def hang(_request: web.Request) -> web.StreamResponse:
    """Answer never."""
    await asyncio.Event().wait()
    return web.Response()


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that hang do so for the whole test, so that a machine that stalls does not end them."""
    monkeypatch.setattr(sending, "CALL_SECONDS", 300.0)
    monkeypatch.setattr(sending, "LEASE_SECONDS", 600.0)


@pytest.mark.usefixtures("_patient")
async def test_targets_that_hang_delay_nobody_elses_notice(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """At most five calls of one owner are under way, and the next notice of another arrives."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    async with Sink() as tarpit, working(settings):
        tarpit.answer = hang
        for notification in await notifications(database, mia, tarpit.url, 200):
            await notices(database, notification, seconds_ago=60)
        await tarpit.wait_for_calls(sending.BOUNDS.per_owner)
        (told,) = await notifications(database, max_, sink.url)
        await notices(database, told)
        await sink.wait_for_calls(1, PATIENCE_SECONDS)
        assert sending.BOUNDS.per_owner == len(tarpit.calls)


@pytest.mark.usefixtures("_patient")
async def test_a_host_gets_so_many_calls_at_once_from_all_owners_together(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """However it is spelled; another host is called meanwhile."""
    owners = [await carillon.member(name) for name in ("ada", "bea", "cleo")]
    async with Sink() as tarpit, working(settings):
        tarpit.answer = hang
        for owner in owners:
            name = (await owner.call("GET", "/me/"))["username"]
            url = tarpit.url.replace("http://", f"http://{name}@")
            for notification in await notifications(database, owner, url, 10):
                await notices(database, notification)
        await tarpit.wait_for_calls(sending.BOUNDS.per_host)
        (told,) = await notifications(database, carillon, sink.url.replace("127.0.0.1", "localhost"))
        await notices(database, told)
        await sink.wait_for_calls(1, PATIENCE_SECONDS)
        assert sending.BOUNDS.per_host == len(tarpit.calls)


async def test_owners_take_turns(carillon: Carillon, database: Database) -> None:
    """A long pile that has waited longer does not come before the first notice of another."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    for notification in await notifications(database, mia, "http://a.test", 30):
        await notices(database, notification, seconds_ago=3600)
    (last,) = await notifications(database, max_, "http://b.test")
    await notices(database, last)
    async with database.transaction() as connection:
        taken = await take(connection, Bounds(in_all=2, per_owner=2, per_host=2))
    assert ["a.test", "b.test"] == sorted(one.host for one in taken)


async def take(connection: AsyncConnection, bounds: Bounds) -> list[stored.Delivery]:
    """Take what is due, with nothing under way."""
    return await stored.take_due(connection, bounds, [], LEASE_SECONDS)


async def test_what_is_taken_is_nobody_elses_for_a_while(carillon: Carillon, database: Database) -> None:
    """Also where two workers look at the same moment; what is under way counts."""
    (notification,) = await notifications(database, carillon, "http://a.test")
    await notices(database, notification, 9)
    bounds = Bounds(in_all=10, per_owner=5, per_host=5)
    async with database.transaction() as one, database.transaction() as other:
        first, beside = await take(one, bounds), await take(other, bounds)
    async with database.transaction() as connection:
        assert [] == await stored.take_due(connection, bounds, first, LEASE_SECONDS)
        second = await take(connection, bounds)
    ids = [number for one in (*first, *beside, *second) for number in one.ids]
    assert (5, 0, 4) == (len(first), len(beside), len(second))
    assert 9 == len(set(ids))


async def test_many_notices_of_one_notification_are_one_digest(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """With the first hundred, in order, and the number of all."""
    (notification,) = await notifications(database, carillon, sink.url)
    await notices(database, notification, 150, 60)
    assert 1 == await deliver(settings)
    (call,) = sink.calls
    assert ("digest", 150) == (call.json["type"], call.json["data"]["count"])
    events: list[Json] = call.json["data"]["events"]
    assert list(range(1, 101)) == [event["data"]["number"] for event in events]
    assert {"type", "timestamp", "data"} == events[0].keys()
    assert {("delivered", 1, 200)} == {(row.status, row.attempts, row.last_status) for row in await rows(database)}


async def test_a_digest_that_fails_is_tried_again_as_one(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """With the same pauses as a single notice, and up to the same number of attempts."""
    sink.answer = refuse
    (notification,) = await notifications(database, carillon, sink.url)
    await notices(database, notification, 30, 60)
    for _ in range(sending.MOST_ATTEMPTS):
        assert 1 == await deliver(settings)
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE deliveries SET next_attempt_at = now()"))
    assert 0 == await deliver(settings)
    assert {("failed", 8)} == {(row.status, row.attempts) for row in await rows(database)}
    assert {30} == {call.json["data"]["count"] for call in sink.calls}


async def test_a_few_notices_come_one_by_one(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """A digest is for piles."""
    (notification,) = await notifications(database, carillon, sink.url)
    await notices(database, notification, stored.DIGEST_OVER, 60)
    assert stored.DIGEST_OVER == await deliver(settings)
    assert {"run.failed"} == {call.json["type"] for call in sink.calls}


@pytest.mark.parametrize("off", [timedelta(hours=-1), timedelta(hours=1)])
async def test_a_worker_whose_clock_is_wrong_keeps_the_pauses(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, off: timedelta
) -> None:
    """They are those of the database's clock: one attempt, and the next one after the first pause."""
    sink.answer = refuse
    (notification,) = await notifications(database, carillon, sink.url)
    await notices(database, notification)
    real = clock.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", lambda: real() + off)
        assert (1, 0) == (await deliver(settings), await deliver(settings))
    (row,) = await rows(database)
    assert (1, "pending") == (row.attempts, row.status)
    assert timedelta(0) < row.pause <= DELIVERY_BACKOFF.delay(1)


async def test_a_delivery_that_crashes_is_said_and_stops_no_other(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes up where deliveries are begun."""
    bad, good = await notifications(database, carillon, sink.url, 2)
    await notices(database, bad, seconds_ago=60)
    async with wire_worker(settings) as parts:
        sender = parts.runtime._notification_sender
        whole = sender._call

        async def crash(delivery: stored.Delivery) -> Any:
            monkeypatch.setattr(sender, "_call", whole)
            raise RuntimeError(f"a defect, at {delivery.url}")

        monkeypatch.setattr(sender, "_call", crash)
        with pytest.raises(RuntimeError, match="a defect"):
            await sender.run_all(PATIENCE_SECONDS)
        await notices(database, good)
        assert 1 == await sender.run_all(PATIENCE_SECONDS)


async def test_looking_for_what_is_due_never_reads_the_whole_table(carillon: Carillon, database: Database) -> None:
    """However much has been delivered, and however much waits."""
    (notification,) = await notifications(database, carillon, "http://a.test")
    await notices(database, notification, 20_000, 3600)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE deliveries SET status = 'delivered' WHERE id % 2 = 0"))
        await connection.execute(text("ANALYZE deliveries"))
    values = stored.values_for(sending.BOUNDS, [], LEASE_SECONDS)
    async with database.transaction() as connection:
        plan = await connection.execute(text(f"EXPLAIN {stored.TAKE}"), values)
        steps = [row[0] for row in plan]
    assert [] == [step for step in steps if "Seq Scan on deliveries" in step]
    async with database.transaction() as connection:
        (digest,) = await take(connection, sending.BOUNDS)
    assert (stored.DIGEST_MOST, stored.DIGEST_SHOWN) == (len(digest.ids), len(digest.notices))


async def test_notices_of_one_moment_are_all_delivered_by_workers(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Place after place becomes free, without a pause in between."""
    for notification in await notifications(database, carillon, sink.url, 60):
        await notices(database, notification)

    async def all_delivered() -> bool:
        return {"delivered"} == {row.status for row in await rows(database)}

    async with working(settings), working(settings):
        await until(all_delivered)
    assert 60 == len(sink.calls)
