"""The overview, figures by minute and the list of workers: right, and only of what one sees.

Covers app.api.figures, app.domain.attention, app.domain.figures, app.persistence.outcome_minutes,
app.persistence.overview, app.services.overview, app.services.views.figures.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from app.config import Settings
from app.domain.attention import Attention, AttentionKind, ranked
from app.domain.figures import MINUTE, earlier_minutes, minute_of, new_minutes, percentile_ms
from app.engine.housekeeping import Housekeeper
from app.persistence import outcome_minutes
from app.persistence.database import Database, database_now
from tests.support.carillon import FAIL, Carillon, Json, fire_and_read, make_due

NOW = datetime(2026, 11, 18, 6, 30, 12, tzinfo=UTC)


async def overdue(database: Database, schedule: Json, seconds: float) -> None:
    """Let a schedule be overdue."""
    await make_due(database, schedule, seconds)


async def end_workers(database: Database) -> None:
    """Forget the leases of engines that a test has driven."""
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM workers"))


async def counts(carillon: Carillon) -> Json:
    """Return the counts of the overview that are not zero."""
    shown = (await carillon.call("GET", "/overview/"))["counts"]
    return {part: {name: number for name, number in shown[part].items() if number} for part in shown}


async def fired(carillon: Carillon, settings: Settings, database: Database, **values: Any) -> Json:
    """Create a schedule whose first run has ended."""
    workflow = await carillon.workflow(*values.pop("actions", ()))
    job = await carillon.schedule(workflow, **values)
    await fire_and_read(carillon, settings, database, job)
    return job


async def test_counts_are_those_of_the_list_with_the_same_filter(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """For each status and each health, also for schedules that are overdue and marked."""
    await fired(carillon, settings, database, name="healthy")
    await fired(carillon, settings, database, name="failing", actions=(FAIL,))
    await fired(carillon, settings, database, name="dead", actions=(FAIL,), max_retries=0)
    await fired(carillon, settings, database, name="done", total_repeats=1)
    await carillon.schedule(name="new")
    late, silent = await carillon.schedule(name="late"), await carillon.schedule(name="silent", interval_seconds=20)
    await overdue(database, late, 20)
    await overdue(database, silent, 100)
    paused = await carillon.schedule(name="paused")
    await carillon.call("POST", f"/schedules/{paused['id']}/pause/")
    shown = await counts(carillon)
    assert {"active": 5, "dead": 1, "done": 1, "paused": 1} == shown["status"]
    expected = {"healthy", "failing", "dead", "done", "never_ran", "late", "silent", "paused"}
    assert dict.fromkeys(expected, 1) == shown["health"]
    for name, number in shown["health"].items():
        page = await carillon.call("GET", "/schedules/", params={"health": name})
        assert number == page["total"], name
    await end_workers(database)
    overview = await carillon.call("GET", "/overview/")
    assert (2, 0, 0, "bell", True) == tuple(
        overview[name] for name in ("due", "running", "workers", "mode", "schedules_enabled")
    )
    assert overview["oldest_overdue_seconds"] >= 100
    assert ["no_workers", "silent", "dead", "failing", "late"] == [one["kind"] for one in overview["attention"]]
    assert "'silent' is overdue by at least three intervals: nothing seems to fire it." in [
        one["sentence"] for one in overview["attention"]
    ]


async def test_a_switched_off_deployment_and_an_open_breaker_need_attention(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The switch first; members see the breakers of their own workflows only."""
    workflow = await carillon.workflow(FAIL, breaker_threshold=1, name="shaky")
    await fire_and_read(carillon, settings, database, await carillon.schedule(workflow))
    await carillon.call("PATCH", "/settings/", json={"schedules_enabled": False})
    overview = await carillon.call("GET", "/overview/")
    kinds = [(one["kind"], one["object_type"], one["id"]) for one in overview["attention"]]
    assert ("schedules_disabled", "settings", None) == kinds[0]
    assert ("breaker_open", "workflow", str(workflow["id"])) in kinds
    assert overview["schedules_enabled"] is False
    await end_workers(database)
    mia = await carillon.member()
    assert ["schedules_disabled", "no_workers"] == [
        one["kind"] for one in (await mia.call("GET", "/overview/"))["attention"]
    ]


async def test_members_and_restricted_tokens_count_only_what_they_see(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """In the overview and in the figures, with the ids of others in every parameter."""
    mia = await carillon.member()
    mine, other = await mia.schedule(name="mine"), await carillon.schedule(name="other")
    for job in (mine, other):
        await fire_and_read(carillon, settings, database, job)
        await overdue(database, job, 30)
    await Housekeeper(database, 30).derive_figures()
    assert {"status": {"active": 1}, "health": {"late": 1}} == await counts(mia)
    assert {"status": {"active": 2}, "health": {"late": 2}} == await counts(carillon)
    assert 1 == (await mia.call("GET", "/overview/"))["due"]
    terms = {"name": "t", "scopes": ["read"], "restrict": {"workflow_ids": [other["workflow_id"]]}}
    made = await carillon.call("POST", "/tokens/", 201, json=terms)
    restricted = carillon.with_token(made["token"])
    assert {"status": {"active": 1}, "health": {"late": 1}} == await counts(restricted)
    for client, number in ((carillon, 2), (mia, 1), (restricted, 1)):
        assert number == await successes(client)
        assert number == sum(one["count"] for one in (await client.call("GET", "/stats/lateness/"))["items"])
    assert 0 == await successes(mia, workflow_id=other["workflow_id"])
    assert 1 == await successes(mia, workflow_id=mine["workflow_id"])
    assert 1 == await successes(carillon, workflow_id=mine["workflow_id"])
    assert 0 == await successes(restricted, workflow_id=mine["workflow_id"])


async def successes(carillon: Carillon, **filters: Any) -> int:
    """Return how many runs of the last hour succeeded, by the figures."""
    figures = await carillon.call("GET", "/stats/outcomes/", params=filters)
    return sum(one["outcomes"].get("success", 0) for one in figures["items"])


async def test_figures_are_derived_again_from_executions_and_ledger(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The same minute twice gives the same rows; what did not fire counts with its slots."""
    job = await fired(carillon, settings, database)
    slot = datetime.fromisoformat((await carillon.runs(job))[0]["scheduled_for"])
    entry = text(
        "INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason) "
        "VALUES (:id, :first, :last, 7, 'missed', 'outage')"
    )
    async with database.transaction() as connection:
        first = minute_of(slot) + timedelta(seconds=1)
        await connection.execute(entry, {"id": UUID(job["id"]), "first": first, "last": first + timedelta(hours=1)})
    for _ in range(2):
        async with database.transaction() as connection:
            await outcome_minutes.derive(connection, minute_of(slot))
    figures = await carillon.call("GET", "/stats/outcomes/")
    assert [{"success": 1, "missed": 7}] == [one["outcomes"] for one in figures["items"]]
    (late,) = (await carillon.call("GET", "/stats/lateness/", params={"step": 3600}))["items"]
    assert (1, True) == (late["count"], 0 <= late["p50_ms"] <= late["p99_ms"])


async def test_housekeeping_derives_what_is_new_and_what_may_have_changed(
    carillon: Carillon, database: Database
) -> None:
    """Nothing twice within seconds, and an old minute again when it has come of age."""
    await Housekeeper(database, 30).derive_figures()
    async with database.transaction() as connection:
        now = await database_now(connection)
        assert [] == await outcome_minutes.due_minutes(connection, minute_of(now))
        old = minute_of(now) - timedelta(minutes=30)
        stale = text("UPDATE outcome_minutes SET derived_at = minute + interval '1 minute' WHERE minute = :old")
        await connection.execute(stale, {"old": old})
        due = await outcome_minutes.due_minutes(connection, now + timedelta(minutes=1))
        assert {old, minute_of(now)} < set(due)
        # Figures are filled back, an hour's at once.
        assert minute_of(now) - timedelta(minutes=119) == due[0]


async def test_housekeeping_deletes_all_old_figures_part_by_part(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and nothing that is kept."""
    monkeypatch.setattr(outcome_minutes, "MOST_DELETED", 4)
    rows = text(
        "INSERT INTO outcome_minutes (user_profile_id, workflow_id, minute, outcomes, lateness) SELECT 1, 1, "
        "date_trunc('minute', now()) - interval '30 days' + n * interval '1 minute', '{}', '{}' "
        "FROM generate_series(-10, 2) AS n"
    )
    async with database.transaction() as connection:
        await connection.execute(rows)
    await Housekeeper(database, 30).keep_weeks()
    async with database.reading() as connection:
        left = await connection.execute(text("SELECT count(*) FROM outcome_minutes"))
        assert left.scalar_one() in {2, 3}


def test_new_minutes_overlap_what_was_not_over_and_earlier_ones_reach_back_a_day() -> None:
    """At most an hour's at once."""
    assert (60, minute_of(NOW)) == (len(new_minutes(None, NOW)), new_minutes(None, NOW)[-1])
    day = minute_of(NOW) - timedelta(hours=24)
    assert ([], [day]) == (earlier_minutes(day, NOW), earlier_minutes(day + MINUTE, NOW))
    assert 60 == len(earlier_minutes(NOW, NOW))
    newest = minute_of(NOW) - 2 * MINUTE
    assert [newest - MINUTE, newest, newest + MINUTE, newest + 2 * MINUTE] == new_minutes(newest, NOW)


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [({}, 0.5, None), ({0: 1}, 0.99, 0.5), ({0: 99, 41: 1}, 0.5, 0.5), ({0: 98, 41: 2}, 0.99, 1116.7)],
)
def test_percentiles_come_from_buckets(buckets: dict[int, int], share: float, expected: float | None) -> None:
    """Bucket 41 has what is between 1,024 and 1,218 ms."""
    assert expected == percentile_ms(buckets, share)


def test_attention_is_ranked_by_harm_then_by_age() -> None:
    """The newest of a kind first."""
    older = Attention(kind=AttentionKind.DEAD, object_type="schedule", id="1", since=NOW - MINUTE)
    newer = Attention(kind=AttentionKind.DEAD, object_type="schedule", id="2", since=NOW)
    off = Attention(kind=AttentionKind.SCHEDULES_DISABLED, object_type="settings")
    assert [off, newer, older] == ranked([older, newer, off], 5)
    assert [off] == ranked([older, newer, off], 1)


@pytest.mark.parametrize(
    ("query", "field"),
    [({"step": 90}, "step"), ({"from": "2020-01-01T00:00:00Z"}, "step"), ({"from": "yesterday"}, "from")],
)
async def test_a_span_or_step_that_makes_no_figures_is_refused(standing: Carillon, query: Json, field: str) -> None:
    """By name."""
    for path in ("/stats/outcomes/", "/stats/lateness/"):
        refused = await standing.request("GET", path, params=query)
        assert (422, field) == (refused.status_code, refused.json()["errors"][0]["field"])


async def test_workers_are_listed_for_admins(carillon: Carillon, settings: Settings, database: Database) -> None:
    """With their leases; page by page."""
    insert = text(
        "INSERT INTO workers (id, name, lease_expires_at) SELECT gen_random_uuid(), 'host/' || n, "
        "clock_timestamp() + make_interval(secs => 60 - 120 * (n % 2)) FROM generate_series(1, 3) AS n"
    )
    async with database.transaction() as connection:
        await connection.execute(insert)
    first = await carillon.call("GET", "/workers/", params={"limit": 2})
    rest = await carillon.call("GET", "/workers/", params={"limit": 2, "cursor": first["next_cursor"]})
    found = [*first["items"], *rest["items"]]
    assert {("host/1", False, 0), ("host/2", True, 0), ("host/3", False, 0)} == {
        (one["name"], one["is_live"], one["running"]) for one in found
    }
    assert 1 == (await carillon.call("GET", "/overview/"))["workers"]
    await (await carillon.member()).call("GET", "/workers/", 403)
