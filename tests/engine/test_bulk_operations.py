"""Operations on many schedules: batches, progress, rights, errors by row, cancelling and undoing.

Covers app.services.bulk_operations, app.persistence.operations, app.persistence.schedule_selections,
app.persistence.tables.bulk, app.api.operations, app.engine.manual_runs.
"""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from app import clock
from app.config import Settings
from app.domain.limits import DEFAULT_CAPS
from app.domain.trigger_event import rfc3339
from app.engine.bulk_operations import OperationRunner
from app.engine.housekeeping import Housekeeper
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.persistence.sql_batches import fetch
from app.queue.bell import Bell, RedisPool
from tests.support.carillon import Carillon, Json, until, working


@pytest.fixture
def runner(database: Database, redis: RedisPool) -> OperationRunner:
    """What a worker runs in a loop, step by step in the test's hands."""
    return OperationRunner(database, Ringer(Bell(redis)), DEFAULT_CAPS)


async def schedules(carillon: Carillon, number: int, **values: Any) -> list[Json]:
    """Create schedules on one workflow."""
    workflow = await carillon.workflow()
    return [await carillon.schedule(workflow, name=f"s{index}", **values) for index in range(number)]


async def bulk(carillon: Carillon, action: str, expected: int = 202, **values: Any) -> Json:
    """Start an operation, or try it out."""
    answer: Json = await carillon.call("POST", "/schedules/bulk/", expected, json={"action": action, **values})
    return answer


async def finished(carillon: Carillon, runner: OperationRunner, operation: Json) -> Json:
    """Carry out all operations, and return this one."""
    while await runner.run_batch(100):
        pass
    shown: Json = await carillon.call("GET", f"/operations/{operation['id']}/")
    return shown


async def undone(carillon: Carillon, runner: OperationRunner, operation: Json) -> Json:
    """Undo an operation and return the undo once it has ended."""
    started: Json = await carillon.call("POST", f"/operations/{operation['id']}/undo/", 202)
    return await finished(carillon, runner, started)


def counts(operation: Json) -> tuple[str, int, int, int, int]:
    """Return the state of an operation and its counters."""
    return (
        operation["status"],
        operation["total"],
        operation["done"],
        operation["skipped"],
        operation["failed"],
    )


def reasons(shown: list[Json]) -> dict[str, int]:
    """Return the reasons with their counts."""
    return {one["reason"]: one["count"] for one in shown}


def ids_of(made: list[Json]) -> list[str]:
    """Return the ids of schedules."""
    return [schedule["id"] for schedule in made]


async def test_a_dry_run_says_how_many_and_what_would_be_skipped(carillon: Carillon) -> None:
    """By state, with the reasons; nothing is stored, and nothing happens."""
    made = await schedules(carillon, 3)
    await carillon.call("POST", f"/schedules/{made[0]['id']}/pause/")
    answer = await bulk(carillon, "pause", 200, filter={"workflow_id": made[0]["workflow_id"]}, dry_run=True)
    assert (3, 2, {"active": 2, "paused": 1}) == (answer["count"], answer["would_change"], answer["by_status"])
    assert {"status_paused": 1} == reasons(answer["skipped"])
    unknown = await bulk(carillon, "pause", 200, ids=[made[0]["id"], str(uuid4())], dry_run=True)
    assert {"status_paused": 1, "not_found": 1} == reasons(unknown["skipped"])
    assert [] == (await carillon.call("GET", "/operations/"))["items"]
    assert ["paused", "active", "active"] == [(await carillon.get(one))["status"] for one in made]


@pytest.mark.parametrize(
    ("action", "arguments", "same"),
    [
        ("label", {"labels": {"add": {"a": "1"}, "remove": ["b"]}}, 1),
        ("set", {"fields": {"timeout_seconds": 5, "not_on": ["sun"], "labels": {"a": "1"}}}, 1),
        ("set", {"fields": {"interval_seconds": 300}}, 2),
        ("delete", {}, 0),
    ],
)
async def test_a_dry_run_knows_what_would_stay_as_it_is(
    carillon: Carillon, action: str, arguments: Json, same: int
) -> None:
    """By the values of the rows."""
    workflow = await carillon.workflow()
    await carillon.schedule(workflow, labels={"a": "1"}, timeout_seconds=5, not_on=["sun"])
    await carillon.schedule(workflow, labels={"a": "1", "b": "2"})
    named = {"filter": {"workflow_id": workflow["id"]}, "arguments": arguments}
    answer = await bulk(carillon, action, 200, **named, dry_run=True)
    assert (2, 2 - same) == (answer["count"], answer["would_change"])
    assert ({"unchanged": same} if same else {}) == reasons(answer["skipped"])


async def test_a_pause_in_batches_and_its_undo(carillon: Carillon, runner: OperationRunner) -> None:
    """What was paused before stays paused; history has who and why; the undo plans the next slots."""
    made = await schedules(carillon, 5)
    await carillon.call("POST", f"/schedules/{made[0]['id']}/pause/")
    started = await bulk(carillon, "pause", filter={"q": "s"}, note="moving", expect_count=5)
    assert ("running", 5, 0, 0, 0) == counts(started)
    assert await runner.run_batch(2)
    half = await carillon.call("GET", f"/operations/{started['id']}/")
    assert ("running", 2) == (half["status"], half["done"] + half["skipped"])
    done = await finished(carillon, runner, started)
    assert ("done", 5, 4, 1, 0) == counts(done)
    assert {"status_paused": 1} == reasons(done["skipped_reasons"])
    assert {"paused"} == {(await carillon.get(one))["status"] for one in made}
    last = (await carillon.history(made[1]))[-1]
    assert ("paused", "moving", "admin") == (last["action"], last["note"], last["by"])
    undo = await undone(carillon, runner, done)
    assert (("done", 4, 4, 0, 0), started["id"]) == (counts(undo), undo["undo_of"])
    after = [await carillon.get(one) for one in made]
    assert ["paused", *["active"] * 4] == [one["status"] for one in after]
    assert all(one["next_run_at"] for one in after[1:])
    again = await carillon.call("GET", f"/operations/{started['id']}/")
    assert (False, undo["id"]) == (again["undoable"], again["undone_by"])
    await carillon.call("POST", f"/operations/{started['id']}/undo/", 400)


async def test_an_undo_leaves_alone_what_was_changed_since(carillon: Carillon, runner: OperationRunner) -> None:
    """Also if it was changed to something else and back; it says how many."""
    made = await schedules(carillon, 3, description="before")
    done = await finished(
        carillon, runner, await bulk(carillon, "set", ids=ids_of(made), arguments={"fields": {"description": "after"}})
    )
    for text in ("mine", "after"):
        await carillon.call("PATCH", f"/schedules/{made[0]['id']}/", json={"description": text})
    await carillon.call("DELETE", f"/schedules/{made[1]['id']}/", 204)
    undo = await undone(carillon, runner, done)
    assert ("done", 3, 1, 2, 0) == counts(undo)
    assert {"changed_since": 1, "not_found": 1} == reasons(undo["skipped_reasons"])
    assert ["after", "before"] == [(await carillon.get(made[index]))["description"] for index in (0, 2)]


async def test_an_undo_after_a_cancellation_restores_exactly_what_was_changed(
    carillon: Carillon, runner: OperationRunner
) -> None:
    """What was not reached is not touched."""
    made = await schedules(carillon, 4)
    started = await bulk(carillon, "pause", ids=ids_of(made))
    assert await runner.run_batch(2)
    cancelled = await carillon.call("POST", f"/operations/{started['id']}/cancel/")
    assert (("cancelled", 4, 2, 0, 0), True) == (counts(cancelled), cancelled["undoable"])
    await carillon.call("POST", f"/operations/{started['id']}/cancel/", 400)
    assert not await runner.run_batch(2)
    undo = await undone(carillon, runner, cancelled)
    assert ("done", 2, 2, 0, 0) == counts(undo)
    histories = [len(await carillon.history(one)) for one in made]
    assert [1, 1, 3, 3] == sorted(histories)


async def test_a_paused_operation_waits(carillon: Carillon, runner: OperationRunner) -> None:
    """It goes on where it stopped."""
    made = await schedules(carillon, 3)
    started = await bulk(carillon, "pause", ids=ids_of(made))
    path = f"/operations/{started['id']}"
    await runner.run_batch(1)
    assert "paused" == (await carillon.call("POST", f"{path}/pause/"))["status"]
    assert not await runner.run_batch(1)
    await carillon.call("POST", f"{path}/pause/", 400)
    assert "running" == (await carillon.call("POST", f"{path}/resume/"))["status"]
    assert ("done", 3, 3, 0, 0) == counts(await finished(carillon, runner, started))


async def test_labels_moves_and_fields(carillon: Carillon, runner: OperationRunner) -> None:
    """Each is an edit, and each undo an edit back."""
    made = await schedules(carillon, 2, labels={"old": "1", "kept": "x"})
    target = await carillon.workflow()
    ids = ids_of(made)
    operations = [
        await finished(carillon, runner, await bulk(carillon, action, ids=ids, arguments=arguments))
        for action, arguments in (
            ("label", {"labels": {"add": {"new": "2"}, "remove": ["old"]}}),
            ("move", {"workflow_id": target["id"]}),
            ("set", {"fields": {"cron": "0 4 * * *", "max_retries": 7, "end_at": "2090-01-01T00:00:00Z"}}),
        )
    ]
    assert [("done", 2, 2, 0, 0)] * 3 == [counts(operation) for operation in operations]
    names = ("labels", "workflow_id", "cron", "interval_seconds", "max_retries", "end_at")
    changed = await carillon.get(made[0])
    assert [{"new": "2", "kept": "x"}, target["id"], "0 4 * * *", None, 7, "2090-01-01T00:00:00Z"] == [
        changed[name] for name in names
    ]
    for operation in reversed(operations):
        # The last one first: the others find what was changed since.
        assert ("done", 2, 2, 0, 0) == counts(await undone(carillon, runner, operation))
        break
    restored = await carillon.get(made[0])
    assert [None, 300, 3, None] == [restored[name] for name in names[2:]]
    left = await undone(carillon, runner, operations[0])
    assert {"changed_since": 2} == reasons(left["skipped_reasons"])


async def test_a_deletion_and_its_undo(carillon: Carillon, runner: OperationRunner) -> None:
    """The schedules are there again under their ids, with their values; what was paused is paused."""
    made = await schedules(carillon, 3, trigger_payload={"a": 1}, labels={"team": "shop"}, cron="0 4 * * *")
    await carillon.call("POST", f"/schedules/{made[0]['id']}/pause/")
    before = [await carillon.get(one) for one in made]
    done = await finished(carillon, runner, await bulk(carillon, "delete", filter={"label": ["team=shop"]}))
    assert ("done", 3, 3, 0, 0) == counts(done)
    for one in made:
        await carillon.call("GET", f"/schedules/{one['id']}/", 404)
    undo = await undone(carillon, runner, done)
    assert ("done", 3, 3, 0, 0) == counts(undo)
    after = [await carillon.get(one) for one in made]
    moving = {"updated_at", "health"}
    for old, new in zip(before, after, strict=True):
        assert {k: v for k, v in old.items() if k not in moving} == {k: v for k, v in new.items() if k not in moving}


async def test_runs_are_started_where_none_is_active(carillon: Carillon, runner: OperationRunner) -> None:
    """A run cannot be undone."""
    made = await schedules(carillon, 3)
    await carillon.call("POST", f"/schedules/{made[0]['id']}/run/", 202)
    tried = await bulk(carillon, "run", 200, ids=ids_of(made), dry_run=True)
    assert (2, {"running": 1}) == (tried["would_change"], reasons(tried["skipped"]))
    done = await finished(carillon, runner, await bulk(carillon, "run", ids=ids_of(made)))
    assert (("done", 3, 2, 1, 0), False) == (counts(done), done["undoable"])
    assert [1, 1, 1] == [len(await carillon.runs(one)) for one in made]
    await carillon.call("POST", f"/operations/{done['id']}/undo/", 400)


async def test_dead_schedules_are_revived_and_die_again_by_the_undo(
    carillon: Carillon, runner: OperationRunner, database: Database
) -> None:
    """With the retries and the time of death that they had."""
    made = await schedules(carillon, 2)
    async with database.transaction() as connection:
        await fetch(
            connection,
            "UPDATE scheduled_jobs SET status = 'dead', status_reason = 'max_retries', dead_at = now(), "
            "current_retry = 3, next_slot = NULL, next_run_at = NULL, cadence_slot = NULL",
        )
    dead = await carillon.get(made[0])
    done = await finished(carillon, runner, await bulk(carillon, "revive", filter={"status": "dead"}))
    assert (("done", 2, 2, 0, 0), "active") == (counts(done), (await carillon.get(made[0]))["status"])
    assert ("done", 2, 2, 0, 0) == counts(await undone(carillon, runner, done))
    again = await carillon.get(made[0])
    names = ("status", "status_reason", "dead_at", "current_retry", "next_run_at")
    assert [dead[name] for name in names] == [again[name] for name in names]


async def test_a_pause_of_many_can_end_by_itself(carillon: Carillon, runner: OperationRunner) -> None:
    """A time in the past is refused; the undo of a resume gives the pause its end back."""
    made = await schedules(carillon, 2)
    past = {"until": rfc3339(clock.now() - timedelta(seconds=5))}
    await bulk(carillon, "pause", 422, ids=ids_of(made), arguments=past)
    later = {"until": rfc3339(clock.now() + timedelta(hours=1))}
    started = await bulk(carillon, "pause", ids=ids_of(made), arguments=later)
    assert ("done", 2, 2, 0, 0) == counts(await finished(carillon, runner, started))
    assert [later["until"]] * 2 == [(await carillon.get(one))["paused_until"] for one in made]
    resumed = await finished(carillon, runner, await bulk(carillon, "resume", ids=ids_of(made)))
    assert [None] * 2 == [(await carillon.get(one))["paused_until"] for one in made]
    assert ("done", 2, 2, 0, 0) == counts(await undone(carillon, runner, resumed))
    assert [later["until"]] * 2 == [(await carillon.get(one))["paused_until"] for one in made]


async def test_another_number_than_expected_is_refused(carillon: Carillon) -> None:
    """And nothing is stored."""
    made = await schedules(carillon, 2)
    for dry_run in (True, False):
        body = {"action": "pause", "ids": ids_of(made), "expect_count": 3, "dry_run": dry_run}
        refused = await carillon.request("POST", "/schedules/bulk/", json=body)
        assert (409, "count_changed") == (refused.status_code, refused.json()["code"])
    assert [] == (await carillon.call("GET", "/operations/"))["items"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "pause"}, ""),
        ({"action": "pause", "ids": [str(uuid4())], "filter": {}}, ""),
        ({"action": "label", "filter": {}}, "arguments.labels"),
        ({"action": "set", "filter": {}, "arguments": {"fields": {}}}, "arguments.fields"),
        ({"action": "set", "filter": {}, "arguments": {"fields": {"key": "a"}}}, "arguments.fields.key"),
        (
            {"action": "set", "filter": {}, "arguments": {"fields": {"max_retries": 10**6}}},
            "arguments.fields.max_retries",
        ),
        ({"action": "move", "filter": {}}, "arguments.workflow_id"),
        ({"action": "pause", "filter": {}, "arguments": {"workflow_id": 1}}, "arguments.workflow_id"),
        ({"action": "pause", "filter": {"label": ["nonsense"]}}, "label"),
        ({"action": "pause", "filter": {"nonsense": 1}}, "filter.nonsense"),
    ],
)
async def test_what_does_not_fit_is_refused(standing: Carillon, body: Json, field: str) -> None:
    """By the name of the field."""
    refused = await standing.request("POST", "/schedules/bulk/", json=body)
    assert 422 == refused.status_code, refused.text
    assert [field] == [error["field"] for error in refused.json()["errors"]]


async def test_a_row_that_refuses_fails_alone(carillon: Carillon, runner: OperationRunner) -> None:
    """Its error is named with its id; the others are changed."""
    good, bad = await schedules(carillon, 2)
    await carillon.call("PATCH", f"/schedules/{bad['id']}/", json={"labels": {f"l{n}": "" for n in range(32)}})
    ids = [good["id"], bad["id"]]
    started = await bulk(carillon, "label", ids=ids, arguments={"labels": {"add": {"new": "1"}}})
    done = await finished(carillon, runner, started)
    assert ("done", 2, 1, 0, 1) == counts(done)
    assert [bad["id"]] == [error["schedule_id"] for error in done["errors"]]
    assert "more than 32 labels" in done["errors"][0]["message"]


async def test_a_row_that_breaks_its_batch_fails_alone(
    carillon: Carillon, runner: OperationRunner, database: Database
) -> None:
    """Here a trigger of the database refuses it; the rows are handled one by one then."""
    made = await schedules(carillon, 3)
    async with database.transaction() as connection:
        await fetch(
            connection,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'not this one'; END $$",
        )
        await fetch(
            connection,
            "CREATE TRIGGER refuse BEFORE UPDATE ON scheduled_jobs FOR EACH ROW "
            "WHEN (OLD.name = 's1') EXECUTE FUNCTION refuse()",
        )
    started = await bulk(carillon, "pause", ids=ids_of(made))
    assert 0.0 < await runner.step()
    done = await carillon.call("GET", f"/operations/{started['id']}/")
    assert ("done", 3, 2, 0, 1) == counts(done)
    assert [made[1]["id"]] == [error["schedule_id"] for error in done["errors"]]
    # The undo is about what was changed, and nothing else.
    assert ("done", 2, 2, 0, 0) == counts(await undone(carillon, runner, done))
    assert [2, 0, 2] == [len(await carillon.history(one)) - 1 for one in made]
    assert {"active"} == {(await carillon.get(one))["status"] for one in made}


async def test_two_operations_on_the_same_schedules_are_both_true(
    carillon: Carillon, runner: OperationRunner, database: Database, redis: RedisPool
) -> None:
    """Each row has one last word: what one has changed, the other has skipped or changed after it."""
    made = await schedules(carillon, 20)
    first = await bulk(carillon, "pause", ids=ids_of(made))
    second = await bulk(carillon, "pause", ids=ids_of(made[5:]))
    other = OperationRunner(database, Ringer(Bell(redis)), DEFAULT_CAPS)

    async def drain(one: OperationRunner) -> None:
        while await one.run_batch(3):
            pass

    await asyncio.gather(drain(runner), drain(other))
    shown = [await carillon.call("GET", f"/operations/{one['id']}/") for one in (first, second)]
    assert ["done", "done"] == [one["status"] for one in shown]
    assert 20 == sum(one["done"] for one in shown)
    assert 15 == sum(one["skipped"] for one in shown)
    assert {2} == {len(await carillon.history(one)) for one in made}


async def test_a_worker_carries_operations_out(carillon: Carillon, settings: Settings) -> None:
    """In its own loop, beside the ticks."""
    made = await schedules(carillon, 3)
    started = await bulk(carillon, "pause", ids=ids_of(made))

    async def ended() -> Json | None:
        shown: Json = await carillon.call("GET", f"/operations/{started['id']}/")
        return shown if shown["status"] == "done" else None

    async with working(settings):
        assert ("done", 3, 3, 0, 0) == counts(await until(ended))


async def test_a_batch_that_is_lost_is_done_again(
    carillon: Carillon, runner: OperationRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies in the middle leaves nothing behind: neither changes nor counts."""
    made = await schedules(carillon, 2)
    started = await bulk(carillon, "pause", ids=ids_of(made))

    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr("app.persistence.operations.store", die)
        with pytest.raises(asyncio.CancelledError):
            await runner.run_batch(10)
    assert {"active"} == {(await carillon.get(one))["status"] for one in made}
    assert ("done", 2, 2, 0, 0) == counts(await finished(carillon, runner, started))


async def test_members_reach_their_own_schedules_alone(carillon: Carillon, runner: OperationRunner) -> None:
    """By ids, by filters, and by a workflow to move to; operations of others do not exist."""
    (foreign,) = await schedules(carillon, 1)
    mia = await carillon.member()
    own = await mia.schedule()
    named: Json
    for named in ({"ids": [foreign["id"], own["id"]]}, {"filter": {}}, {"filter": {"ids": [foreign["id"], own["id"]]}}):
        assert 1 == (await bulk(mia, "pause", 200, **named, dry_run=True))["count"]
    started = await bulk(mia, "pause", ids=[foreign["id"], own["id"]])
    assert ("done", 1, 1, 0, 0) == counts(await finished(mia, runner, started))
    assert "active" == (await carillon.get(foreign))["status"]
    await bulk(mia, "move", 404, filter={}, arguments={"workflow_id": foreign["workflow_id"]})
    others = await bulk(carillon, "pause", ids=[foreign["id"]])
    await mia.call("GET", f"/operations/{others['id']}/", 404)
    for verb in ("pause", "resume", "cancel", "undo"):
        await mia.call("POST", f"/operations/{others['id']}/{verb}/", 404)
    assert [started["id"]] == [one["id"] for one in (await mia.call("GET", "/operations/"))["items"]]
    assert 2 == len((await carillon.call("GET", "/operations/"))["items"])


async def test_a_user_who_is_disabled_changes_nothing_more(carillon: Carillon, runner: OperationRunner) -> None:
    """Their operations fail, and say why."""
    mia = await carillon.member()
    own = await mia.schedule()
    started = await bulk(mia, "pause", ids=[own["id"]])
    await carillon.call("PATCH", f"/users/{own['user_profile_id']}/", json={"disabled": True})
    failed = await finished(carillon, runner, started)
    assert ("failed", 1, 0, 0, 0) == counts(failed)
    assert "disabled" in failed["error"]
    assert "active" == (await carillon.get(own))["status"]


async def test_a_token_needs_the_scope_of_the_action(carillon: Carillon, runner: OperationRunner) -> None:
    """Pausing needs less than changing; an undo needs what the operation needed."""
    made = await schedules(carillon, 1)
    token = await carillon.call("POST", "/tokens/", 201, json={"name": "t", "scopes": ["operate"]})
    operator = carillon.with_token(token["token"])
    assert 1 == (await bulk(operator, "pause", ids=ids_of(made)))["total"]
    for action, arguments in (("delete", {}), ("label", {"labels": {"add": {"a": "1"}}})):
        refused = await bulk(operator, action, 403, ids=ids_of(made), arguments=arguments)
        assert "insufficient_scope" == refused["code"]
    deleted = await finished(carillon, runner, await bulk(carillon, "delete", ids=ids_of(made)))
    assert "insufficient_scope" == (await operator.call("POST", f"/operations/{deleted['id']}/undo/", 403))["code"]


async def test_a_restricted_token_reaches_its_workflows_alone(carillon: Carillon, runner: OperationRunner) -> None:
    """Also through the operations of others."""
    (one,), (other,) = await schedules(carillon, 1), await schedules(carillon, 1)
    terms = {"name": "t", "restrict": {"workflow_ids": [one["workflow_id"]]}}
    token = await carillon.call("POST", "/tokens/", 201, json=terms)
    restricted = carillon.with_token(token["token"])
    started = await bulk(restricted, "pause", filter={})
    assert ("done", 1, 1, 0, 0) == counts(await finished(restricted, runner, started))
    assert "active" == (await carillon.get(other))["status"]
    whole = await finished(carillon, runner, await bulk(carillon, "pause", ids=[other["id"]]))
    await restricted.call("POST", f"/operations/{whole['id']}/undo/", 404)


async def test_the_audit_log_has_the_operation(carillon: Carillon, runner: OperationRunner) -> None:
    """With its action, its selection and its total."""
    made = await schedules(carillon, 2)
    done = await finished(carillon, runner, await bulk(carillon, "pause", ids=ids_of(made), note="why"))
    undo = await undone(carillon, runner, done)
    events = await carillon.call("GET", "/audit/", params={"object_type": "operation"})
    second, first = events["items"]
    assert ("operation_started", done["id"], "pause", "why") == (
        first["action"],
        first["object_id"],
        first["object_name"],
        first["note"],
    )
    assert {"ids": 2} == first["details"]["selection"]
    assert (undo["id"], done["id"]) == (second["object_id"], second["details"]["undo_of"])
    of_one = await carillon.call("GET", "/audit/", params={"object_id": made[0]["id"], "actor": "admin"})
    resumed, paused, _ = of_one["items"]
    assert ["schedule_resumed", "schedule_paused"] == [resumed["action"], paused["action"]]
    # A worker did it, for the one who had asked, by the way and in the request of the latter.
    told = [(one["on_behalf_of"], one["via"], one["request_id"]) for one in (resumed, paused)]
    assert [("admin", "api", one["request_id"]) for one in (second, first)] == told


async def test_late_schedules_can_be_named_by_their_health(
    carillon: Carillon, runner: OperationRunner, database: Database
) -> None:
    """Which depends on the cadence of each."""
    late, _ = await schedules(carillon, 2)
    async with database.transaction() as connection:
        await fetch(
            connection,
            "UPDATE scheduled_jobs SET next_run_at = now() - interval '20 seconds', next_slot = now() - "
            "interval '20 seconds' WHERE id = $1",
            UUID(late["id"]),
        )
    done = await finished(carillon, runner, await bulk(carillon, "pause", filter={"health": "late"}))
    assert ("done", 1, 1, 0, 0) == counts(done)
    assert "paused" == (await carillon.get(late))["status"]


async def test_old_operations_are_deleted_with_the_history(
    carillon: Carillon, runner: OperationRunner, database: Database
) -> None:
    """With their schedules; one that has not ended stays."""
    made = await schedules(carillon, 1)
    done = await finished(carillon, runner, await bulk(carillon, "pause", ids=ids_of(made)))
    running = await bulk(carillon, "resume", ids=ids_of(made))
    async with database.transaction() as connection:
        old = "UPDATE operations SET created_at = now() - interval '40 days', finished_at = finished_at - $1::interval"
        await fetch(connection, old, timedelta(days=40))
    await Housekeeper(database, 30).keep_weeks()
    await carillon.call("GET", f"/operations/{done['id']}/", 404)
    assert [running["id"]] == [one["id"] for one in (await carillon.call("GET", "/operations/"))["items"]]
    async with database.transaction() as connection:
        assert 1 == (await fetch(connection, "SELECT count(*) FROM operation_items"))[0][0]
