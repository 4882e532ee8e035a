"""``explain``: for every outcome of a slot the right answer; and what was expected is what is accounted for.

Covers app.domain.explain, app.persistence.ledger, app.services.schedule_queries.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import FAIL, Carillon, Json, engine_of, make_due, moment, until, working

WAIT = {"id": "work", "type": "core.delay", "config": {"seconds": 600}}


def written(value: datetime) -> str:
    """The same the other way round."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


async def tick(settings: Settings, database: Database, schedule: Json, seconds_ago: float = 0) -> datetime:
    """Make the pending tick due, deliver it, and wait for what it started; its slot."""
    due = await make_due(database, schedule, seconds_ago)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    slot: datetime = due["slot"]
    return slot


def checks(explanation: Json) -> dict[str, bool]:
    """The checks by name."""
    return {one["check"]: one["passed"] for one in explanation["checks"]}


def held_up_by(explanation: Json) -> tuple[str, str]:
    """The last check, which failed, and what it said."""
    *passed, last = explanation["checks"]
    assert all(one["passed"] for one in passed)
    assert not last["passed"]
    return last["check"], last["detail"]


async def run_by_hand(carillon: Carillon, schedule: Json) -> Json:
    """A manual run that nobody works on: it is pending, and in the way."""
    answer: Json = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    return answer


async def test_fired(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Every check passed; the sentence names the execution and how it ended."""
    schedule = await carillon.schedule()
    slot = await tick(settings, database, schedule)
    explanation = await carillon.explain(schedule, written(slot + timedelta(seconds=20)))
    (run,) = await carillon.runs(schedule)
    assert ("fired", slot, run["id"]) == (
        explanation["outcome"],
        moment(explanation["slot"]),
        explanation["execution_id"],
    )
    assert f"as execution {run['id']}, which has the status success." in explanation["sentence"]
    assert [
        "spec",
        "start_end",
        "window",
        "weekday",
        "calendar",
        "active",
        "skip",
        "retry",
        "missed",
        "breaker",
        "guard",
        "overlap",
    ] == [*checks(explanation)]
    assert all(checks(explanation).values())


async def test_skipped_overlap(carillon: Carillon, settings: Settings, database: Database) -> None:
    """It names the execution that stood in the way."""
    schedule = await carillon.schedule()
    run = await run_by_hand(carillon, schedule)
    slot = await tick(settings, database, schedule)
    explanation = await carillon.explain(schedule, written(slot))
    assert ("skipped_overlap", run["id"]) == (explanation["outcome"], explanation["execution_id"])
    assert ("overlap", f"an earlier execution was still active (execution {run['id']})") == held_up_by(explanation)


async def test_queued_and_skipped_queue_full(carillon: Carillon, settings: Settings, database: Database) -> None:
    """One waits for its turn, the next finds the queue full."""
    schedule = await carillon.schedule(if_running="queue", max_queued=1)
    await run_by_hand(carillon, schedule)
    queued = await tick(settings, database, schedule)
    explanation = await carillon.explain(schedule, written(queued))
    assert "queued" == explanation["outcome"]
    assert explanation["sentence"].endswith("and waits for its turn.")
    full = await tick(settings, database, schedule)
    assert ("overlap", "1 runs were queued already, and max_queued is 1") == tuple(
        part.partition(" (execution")[0] for part in held_up_by(await carillon.explain(schedule, written(full)))
    )


async def test_skipped_guard(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Another schedule's run has the only place."""
    workflow = await carillon.workflow(WAIT, max_concurrent_runs=1)
    other, schedule = await carillon.schedule(workflow), await carillon.schedule(workflow)

    async def running() -> bool:
        return [run["status"] for run in await carillon.runs(other)] == ["running"]

    await make_due(database, other)
    async with working(settings):
        await until(running)
        slot = await tick(settings, database, schedule)
        explanation = await carillon.explain(schedule, written(slot))
        assert "skipped_guard" == explanation["outcome"]
        assert ("guard", "1 of 1 concurrent runs of the workflow were under way") == held_up_by(explanation)
        coming = await carillon.explain(schedule, (await carillon.get(schedule))["next_run_at"])
        assert (False, "expected") == (checks(coming)["guard"], coming["outcome"])
        assert "it will not fire if this is still so then: 1 of 1" in coming["sentence"]


async def test_skipped_breaker(carillon: Carillon, settings: Settings, database: Database) -> None:
    """With the time until which it is open."""
    workflow = await carillon.workflow(FAIL, breaker_threshold=1, breaker_reset_seconds=3600)
    schedule = await carillon.schedule(workflow)
    await tick(settings, database, schedule)
    other = await carillon.schedule(workflow)
    slot = await tick(settings, database, other)
    explanation = await carillon.explain(other, written(slot))
    assert "skipped_breaker" == explanation["outcome"]
    check, detail = held_up_by(explanation)
    assert ("breaker", True) == (check, detail.startswith("the breaker is open until "))
    coming = await carillon.explain(other, (await carillon.get(other))["next_run_at"])
    assert (False, "expected") == (checks(coming)["breaker"], coming["outcome"])


async def test_skipped_retry(carillon: Carillon, settings: Settings, database: Database) -> None:
    """While a retry holds the schedule, and when it has been accounted for."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL), backoff_base_seconds=600)
    first = await tick(settings, database, schedule)
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE scheduled_jobs SET cadence_slot = cadence_slot - interval '310 s', "
                "anchor_at = anchor_at - interval '310 s'"
            )
        )
    passed = first - timedelta(seconds=10)
    held = await carillon.explain(schedule, written(passed))
    assert "skipped_retry" == held["outcome"]
    assert ("retry", f"a retry of the slot {written(first)} holds the schedule") == held_up_by(held)
    await tick(settings, database, schedule)
    assert ("retry", "a retry held the schedule") == held_up_by(await carillon.explain(schedule, written(passed)))


@pytest.mark.parametrize(("policy", "outcome"), [("skip", "missed"), ("run_once", "coalesced")])
async def test_missed_and_coalesced(
    carillon: Carillon, settings: Settings, database: Database, policy: str, outcome: str
) -> None:
    """A range answers for each of its slots."""
    schedule = await carillon.schedule(catch_up=policy)
    first = await tick(settings, database, schedule, 15 * 60 + 120)
    for number in range(3):
        slot = first + number * timedelta(seconds=300)
        explanation = await carillon.explain(schedule, written(slot))
        assert (outcome, slot) == (explanation["outcome"], moment(explanation["slot"]))
        assert "missed" == held_up_by(explanation)[0]


async def test_paused_by_whom_and_when(carillon: Carillon, database: Database) -> None:
    """A slot that would have been: nobody expected it, and it is said who is why, with the note."""
    mia = await carillon.member("mia")
    schedule = await mia.schedule(interval_seconds=2)
    path = f"/schedules/{schedule['id']}"
    await mia.call("POST", f"{path}/pause/", json={"note": "the target is down"})
    (_, pause) = await mia.history(schedule)
    # As if the pause had been an hour ago.
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE schedule_revisions SET at = at - interval '1 hour'"))
        await connection.execute(
            text("UPDATE schedule_revisions SET snapshot = jsonb_set(snapshot, '{anchor_at}', to_jsonb(at))")
        )
    explanation = await mia.explain(schedule, written(moment(pause["at"]) - timedelta(minutes=30)))
    assert "not_expected" == explanation["outcome"]
    check, detail = held_up_by(explanation)
    assert "active" == check
    assert detail.startswith("the schedule was paused (manual), by mia at ")
    assert detail.endswith("(the target is down)")
    assert "by mia" in explanation["sentence"]


async def test_the_schedule_as_it_was_then(carillon: Carillon, database: Database) -> None:
    """The explanation of an earlier slot has the spec of that time, who made it so, and what is different now."""
    schedule = await carillon.schedule(name="moved", cron="0 5 * * *")
    await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"cron": "30 6 * * *", "name": "renamed"})
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE schedule_revisions SET at = at - interval '3 days' WHERE action = 'created'")
        )
    created, changed = await carillon.history(schedule)
    then = (await carillon.explain(schedule, written(moment(changed["at"]) - timedelta(days=1))))["then"]
    assert (created["at"], created["by"], "active") == (then["since"], then["by"], then["status"])
    assert "every day at 05:00 UTC" == then["spec_description"]
    assert {"cron": {"from": "0 5 * * *", "to": "30 6 * * *"}} == then["changes"]
    now = (await carillon.explain(schedule))["then"]
    assert (changed["at"], {}) == (now["since"], now["changes"])


async def test_outside_the_window_and_on_an_excluded_day(carillon: Carillon) -> None:
    """The slot of the bare spec is named, and which rule excludes it."""
    schedule = await carillon.schedule(
        cron="0 * * * *", timezone="Europe/Berlin", only_between="08:00-18:00", not_on=["sat"]
    )
    evening = await carillon.explain(schedule, "2030-01-03T20:10:00+01:00")
    assert ("not_expected", "2030-01-03T19:00:00Z") == (evening["outcome"], evening["slot"])
    assert ("window", "Thursday 20:00 Europe/Berlin is outside only_between 08:00-18:00") == held_up_by(evening)
    saturday = await carillon.explain(schedule, "2030-01-05T10:00:00+01:00")
    assert ("weekday", "not_on (saturday) excludes Saturday 10:00 Europe/Berlin") == held_up_by(saturday)
    monday = await carillon.explain(schedule, "2030-01-07T10:00:00+01:00")
    assert ("expected", True) == (monday["outcome"], all(checks(monday).values()))


async def test_before_it_begins_and_after_its_end(carillon: Carillon) -> None:
    """Not expected."""
    schedule = await carillon.schedule(
        cron="@daily", start_at="2030-01-10T00:00:00Z", end_at="2030-01-20T00:00:00Z", misfire_grace_seconds=0
    )
    late = await carillon.explain(schedule, "2030-02-01T00:00:00Z")
    assert ("start_end", "2030-02-01T00:00:00Z lies after end_at") == held_up_by(late)
    early = await carillon.explain(schedule, "2030-01-01T00:00:00Z")
    assert ("start_end", "2030-01-01T00:00:00Z lies before start_at") == held_up_by(early)


async def test_a_paused_schedule_has_nothing_to_come(carillon: Carillon) -> None:
    """The same check answers for the future."""
    schedule = await carillon.schedule()
    await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    explanation = await carillon.explain(schedule, written(datetime.now(UTC) + timedelta(days=1)))
    assert "not_expected" == explanation["outcome"]
    assert held_up_by(explanation)[1].startswith("the schedule is paused (manual), by admin at ")


async def test_due_and_taken_up_by_nobody(carillon: Carillon, database: Database) -> None:
    """Without workers a slot waits, and says so."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule, 1)
    explanation = await carillon.explain(schedule, written(due["slot"]))
    assert "due" == explanation["outcome"]
    assert explanation["sentence"].endswith("no worker has taken it up yet.")


async def test_without_a_time_it_is_about_now(carillon: Carillon) -> None:
    """And a time at the edge of the calendar is refused."""
    schedule = await carillon.schedule()
    assert "expected" == (await carillon.explain(schedule))["outcome"]
    path = f"/schedules/{schedule['id']}/explain/"
    for value in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "yesterday", "2026-01-01T00:00:00"):
        problem = await carillon.call("GET", path, 422, params={"at": value})
        assert ["at"] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("policy", ["skip", "run_once", "run_all"])
async def test_the_sum_of_the_outcomes_is_what_the_spec_expects(
    carillon: Carillon, settings: Settings, database: Database, policy: str
) -> None:
    """After an outage over a window and an excluded hour: each slot has one outcome, counted minute by minute."""
    opens, closes = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-20, 2))
    window = f"{opens:%H:%M}-{closes:%H:%M}"
    schedule = await carillon.schedule(cron="*/10 * * * *", only_between=window, catch_up=policy, if_running="queue")
    began = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=30)
    async with database.transaction() as connection:
        # As if it had been created, and nobody had worked, since then.
        await connection.execute(
            text(
                "UPDATE scheduled_jobs SET anchor_at = :began, next_slot = :first, next_run_at = :first, "
                "cadence_slot = :first"
            ),
            {"began": began, "first": expected(began, datetime.now(UTC), window)[0]},
        )
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), 1)
    ledger = await carillon.ledger(schedule)
    slots = expected(began, moment(ledger[-1]["slot"]), window)
    assert slots[-1] == moment(ledger[-1]["slot"])
    assert len(slots) == sum(item.get("count", 1) for item in ledger)


def expected(began: datetime, until_moment: datetime, window: str) -> list[datetime]:
    """The slots of every tenth minute within a window, by looking at each minute."""
    start, end = window.split("-")
    minutes = [began + timedelta(minutes=k) for k in range(1, (until_moment - began) // timedelta(minutes=1) + 1)]
    inside = [
        one for one in minutes if (start <= f"{one:%H:%M}" < end) or (start > end and not end <= f"{one:%H:%M}" < start)
    ]
    return [one for one in inside if one.minute % 10 == 0]


async def test_a_zone_that_vanished_from_row_and_history(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """What was invalid, since when, and what the slot became; the schedule is paused, and nothing is a 500."""
    schedule = await carillon.schedule(cron="*/5 * * * *", timezone="Europe/Berlin")
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE scheduled_jobs SET timezone = 'Mars/Base'"))
        await connection.execute(
            text("""UPDATE schedule_revisions SET snapshot = snapshot || '{"timezone": "Mars/Base"}'""")
        )
    slot = await tick(settings, database, schedule)
    assert "invalid_spec" == (await carillon.get(schedule))["status_reason"]
    _, paused = await carillon.history(schedule)
    for asked in (None, written(slot), written(slot - timedelta(days=3)), written(slot + timedelta(days=3))):
        explanation = await carillon.explain(schedule, asked)
        assert ("missed", slot) == (explanation["outcome"], moment(explanation["slot"]))
        assert "(missed): the spec was no longer valid." in explanation["sentence"]
        found = f"its spec is not valid (found at {paused['at']}): There is no timezone 'Mars/Base'."
        assert found in explanation["sentence"]
        assert ("spec", False) == (explanation["checks"][0]["check"], explanation["checks"][0]["passed"])


async def test_a_paused_schedule_is_asked_why_it_does_not_run(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Without a time the answer is about the slot to come, not about the last one that fired."""
    schedule = await carillon.schedule()
    await tick(settings, database, schedule)
    await carillon.call("POST", f"/schedules/{schedule['id']}/pause/", json={"note": "stock-taking"})
    explanation = await carillon.explain(schedule)
    assert "not_expected" == explanation["outcome"]
    assert "the schedule is paused (manual), by admin at" in explanation["sentence"]
    assert "(stock-taking)" in explanation["sentence"]


async def test_a_retry_that_succeeded_is_named(carillon: Carillon, settings: Settings, database: Database) -> None:
    """The first attempt failed, the second did not: the answer says both."""
    workflow = await carillon.workflow(FAIL)
    schedule = await carillon.schedule(workflow, backoff_base_seconds=1)
    slot = await tick(settings, database, schedule)
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": workflow["nodes"][:1], "edges": []})
    await tick(settings, database, schedule)
    failed, succeeded = await carillon.runs(schedule)
    explanation = await carillon.explain(schedule, written(slot))
    assert ("fired", succeeded["id"]) == (explanation["outcome"], explanation["execution_id"])
    assert f"as execution {failed['id']}, which has the status failed." in explanation["sentence"]
    assert f"Its retry 1, execution {succeeded['id']}, has the status success." in explanation["sentence"]
