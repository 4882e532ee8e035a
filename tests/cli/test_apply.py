"""``carillon apply``: files become workflows and schedules.

Covers app.persistence.declarations, app.services.declarations.applying, app.services.declarations.writing.
"""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.cli.operators import OPERATOR
from app.config import Settings
from app.domain.errors import NotFoundError, UnavailableError
from app.engine.ringing import Ringer
from app.persistence import declarations
from app.persistence.database import Database
from app.queue.bell import Bell, RedisPool
from app.queue.message_format import CANCEL_CHANNEL, QUEUE
from app.services.executions import ManualRunService
from app.services.inputs import RunInput, UserInput
from app.services.users import UserService
from tests.support.carillon import Carillon, Json, engine_of, make_due, until
from tests.support.declarations import NIGHTLY, Applying, applying, names, state

TWO_MINUTES = NIGHTLY.replace("1m", "2m")
EMPTY = "namespace: shop\n"


async def only(carillon: Carillon, kind: str = "schedules") -> Json:
    """The one that there is."""
    (found,) = (await carillon.call("GET", f"/{kind}/"))["items"]
    return dict(found)


async def statuses(database: Database) -> dict[str, str]:
    """The states of all schedules."""
    return {one["name"]: one["status"] for one in (await state(database))["scheduled_jobs"]}


async def test_applying_twice_changes_nothing(apply: Applying, database: Database) -> None:
    """No new revision, no new plan, no new time."""
    told = await apply(NIGHTLY)
    assert (["+ workflow report", "+ schedule nightly"], []) == (told.lines, told.problems)
    made = await state(database)
    (job,), (workflow,), (revision,) = made["scheduled_jobs"], made["workflows"], made["schedule_revisions"]
    assert ("nightly", 60, "active", workflow["id"]) == tuple(
        job[name] for name in ("name", "interval_seconds", "status", "workflow_id")
    )
    assert ("created", "apply:shop") == (revision["action"], revision["author"])
    assert [] == (await apply(NIGHTLY)).lines
    assert ["= workflow report", "= schedule nightly"] == (await apply(NIGHTLY, verbose=True)).lines
    assert made == await state(database)


async def test_only_what_differs_is_changed_and_shown(apply: Applying, database: Database) -> None:
    """By the path of a PATCH; what is no longer said goes back to its default."""
    await apply(NIGHTLY + "    timeout_seconds: 5\n    trigger_payload: {bb: 1, a: [on]}\n")
    (before,) = (await state(database))["scheduled_jobs"]
    assert (5, {"bb": 1, "a": ["on"]}) == (before["timeout_seconds"], before["trigger_payload"])
    changed = TWO_MINUTES.replace("core.noop", "core.fail") + "    trigger_payload: {a: ['on'], bb: 2}\n"
    assert [
        '~ workflow report  nodes[1].type: "core.noop" -> "core.fail"',
        "~ schedule nightly  interval_seconds: 60 -> 120, timeout_seconds: 5 -> 600, trigger_payload.bb: 1 -> 2",
    ] == (await apply(changed)).lines
    made = await state(database)
    (after,) = made["scheduled_jobs"]
    assert (before["id"], 120, 600) == (after["id"], after["interval_seconds"], after["timeout_seconds"])
    assert before["next_run_at"] < after["next_run_at"]
    assert ["created", "changed"] == [one["action"] for one in made["schedule_revisions"]]
    assert [] == (await apply(changed)).lines


async def test_what_was_changed_by_other_means_is_as_declared_again(
    carillon: Carillon, apply: Applying, database: Database
) -> None:
    """A new name, a workflow of the same name from another namespace; and what was deleted is made again."""
    both = f"{NIGHTLY}---\n{NIGHTLY.replace('shop', 'shed')}"
    await apply(both)
    managed = await state(database)
    (job_id,) = (one["scheduled_job_id"] for one in managed["managed_schedules"] if one["namespace"] == "shop")
    (other,) = (one["workflow_id"] for one in managed["managed_workflows"] if one["namespace"] == "shed")
    await carillon.call("PATCH", f"/schedules/{job_id}/", json={"name": "renamed", "workflow_id": other})
    told = await apply(both)
    assert [f'~ schedule nightly  name: "renamed" -> "nightly", workflow: "id {other}" -> "report"'] == told.lines
    await carillon.call("DELETE", f"/schedules/{job_id}/", 204)
    assert ["+ schedule nightly"] == (await apply(both)).lines


async def test_what_somebody_else_made_under_the_same_name_is_left_alone(
    carillon: Carillon, apply: Applying, database: Database
) -> None:
    """Pruned neither."""
    workflow = await carillon.workflow(name="report")
    await carillon.schedule(workflow, name="nightly")
    made = await state(database)
    assert ["+ workflow report", "+ schedule nightly"] == (await apply(NIGHTLY)).lines
    assert ["nightly", "nightly"] == await names(database)
    assert ["+ workflow report", "+ schedule nightly"] == (await apply(NIGHTLY.replace("shop", "shed"))).lines
    for namespace in ("shop", "shed"):
        told = await apply(f"namespace: {namespace}", prune=True)
        assert ["- schedule nightly", "- workflow report"] == told.lines
    assert made == await state(database)


async def test_what_is_no_longer_declared_is_left_until_somebody_prunes(apply: Applying, database: Database) -> None:
    """And only in the namespaces of the files; what any of them declares stays."""
    second = NIGHTLY.replace("nightly", "hourly").replace("report", "other")
    await apply(NIGHTLY, second)
    told = await apply(EMPTY)
    remark = "(no longer declared; --prune deletes it)"
    left = ["schedule hourly", "schedule nightly", "workflow other", "workflow report"]
    assert [f"? {name}  {remark}" for name in left] == told.lines
    assert [] == (await apply(NIGHTLY, second, prune=True)).lines
    assert ["- schedule hourly", "- workflow other"] == (await apply(NIGHTLY, prune=True)).lines
    assert [] == (await apply("namespace: elsewhere", prune=True)).lines
    assert (["nightly"], ["report"]) == (await names(database), await names(database, "workflows"))


async def test_a_workflow_that_others_use_is_not_pruned(
    carillon: Carillon, apply: Applying, database: Database
) -> None:
    """They are named, and nothing is deleted."""
    await apply(NIGHTLY)
    workflow = await only(carillon, "workflows")
    mine = await carillon.schedule(workflow, name="mine")
    told = await apply(EMPTY, prune=True)
    words = "namespace: The workflow 'report' is no longer declared, but schedules that stay run it: 'mine'."
    assert ([], [f"a.yaml:1: {words}"]) == (told.lines, told.problems)
    assert ["mine", "nightly"] == await names(database)
    await carillon.call("DELETE", f"/schedules/{mine['id']}/", 204)
    assert [] == (await apply(EMPTY, prune=True)).problems


async def test_a_dry_run_writes_nothing_and_says_the_same(apply: Applying, database: Database) -> None:
    """Each file sees what the ones before would have written, and so does the pruning."""
    await apply(NIGHTLY)
    made = await state(database)
    moved = TWO_MINUTES.replace("report", "other")
    more = "namespace: shop\nschedules: [{name: hourly, workflow: other, every: 1h}]"
    expected = ["+ workflow other", '~ schedule nightly  interval_seconds: 60 -> 120, workflow: "report" -> "other"']
    expected += ["+ schedule hourly", "- workflow report"]
    rehearsed = await apply(moved, more, dry_run=True, prune=True)
    assert (expected, []) == (rehearsed.lines, rehearsed.problems)
    assert made == await state(database)
    assert rehearsed == await apply(moved, more, prune=True)


async def test_what_an_operator_paused_stays_paused(carillon: Carillon, apply: Applying) -> None:
    """Whatever the file says, and however it changes."""
    await apply(NIGHTLY)
    schedule = await only(carillon)
    await carillon.call("POST", f"/schedules/{schedule['id']}/pause/", json={"note": "on fire"})
    told = await apply(NIGHTLY, verbose=True)
    assert ["= workflow report", "= schedule nightly  (paused)"] == told.lines
    told = await apply(TWO_MINUTES + "    paused: false\n")
    assert ["~ schedule nightly  interval_seconds: 60 -> 120  (paused)"] == told.lines
    paused = await carillon.get(schedule)
    assert ("paused", "manual", None) == (paused["status"], paused["status_reason"], paused["next_run_at"])
    await carillon.call("POST", f"/schedules/{schedule['id']}/resume/")
    assert [] == (await apply(TWO_MINUTES)).lines


async def test_a_file_may_pause(carillon: Carillon, apply: Applying, redis: RedisPool) -> None:
    """From the beginning, or later; it says so once."""
    paused = NIGHTLY + "    paused: true\n"
    await apply(paused)
    schedule = await only(carillon)
    assert ("paused", None) == (schedule["status"], schedule["next_run_at"])
    assert 0 == await redis.zcard(QUEUE)
    assert [] == (await apply(paused)).lines
    await carillon.call("POST", f"/schedules/{schedule['id']}/resume/")
    assert ["~ schedule nightly  paused: false -> true  (paused)"] == (await apply(paused)).lines
    assert "declared as paused" == (await carillon.history(schedule))[-1]["note"]
    assert [] == (await apply(paused)).lines


async def test_the_dead_stay_dead_and_the_done_follow_the_rules_of_an_edit(
    apply: Applying, settings: Settings, database: Database
) -> None:
    """A one-shot that has fired is declared still, and that is no mistake."""
    dying = NIGHTLY.replace("core.noop", "core.fail").replace("1m", "1m\n    max_retries: 0")
    once = NIGHTLY.replace("every: 1m", "after: 1m").replace("nightly", "once").replace("report", "r2")
    await apply(dying, once)
    async with engine_of(settings) as engine:
        for job in (await state(database))["scheduled_jobs"]:
            due = await make_due(database, {"id": str(job["id"])})
            await engine.execute_scheduled_job(job["id"], due["generation"])
    assert {"nightly": "dead", "once": "done"} == await statuses(database)
    assert "= schedule once  (done)" in (await apply(dying, once, verbose=True)).lines
    assert [] == (await apply(dying, once)).lines
    told = await apply(dying.replace("1m", "2m"), once.replace("after: 1m", "after: 3m"))
    assert [
        "~ schedule nightly  interval_seconds: 60 -> 120  (dead)",
        '~ schedule once  after: "1m" -> "3m"',
    ] == told.lines
    assert {"nightly": "dead", "once": "active"} == await statuses(database)


async def test_a_bad_file_is_not_applied_at_all_and_the_others_are(apply: Applying, database: Database) -> None:
    """Be it known before or while it is written; nothing is pruned then."""
    await apply(NIGHTLY)
    late = "- {name: fine, workflow: report, every: 1m}\n- {name: late, workflow: report, at: 2020-01-01T00:00:00Z}"
    bad = f"namespace: shop\nschedules:\n{late}\n"
    edited = NIGHTLY.replace("every: 1m", "cron: 0 7 * * *\n    only_between: 08:00-09:00")
    good = NIGHTLY.replace("nightly", "good").replace("report", "g")
    told = await apply(bad, edited, good, prune=True)
    assert ["+ workflow g", "+ schedule good"] == told.lines
    assert [
        "a.yaml:4: schedule 'late': at: The time is past by more than `misfire_grace_seconds`. Choose a later one.",
        "b.yaml:12: schedule 'nightly': only_between: The spec has no slot: every time that it names is excluded",
    ] == [problem.partition(" or does")[0] for problem in sorted(told.problems)]
    assert (["good", "nightly"], ["g", "report"]) == (await names(database), await names(database, "workflows"))


async def test_files_find_the_workflows_of_each_other(apply: Applying) -> None:
    """In whatever order they are given; and those that were applied before."""
    uses = "namespace: shop\nschedules: [{name: s, workflow: report, every: 1m}]\n"
    told = await apply(uses, NIGHTLY)
    assert ["+ workflow report", "+ schedule nightly", "+ schedule s"] == told.lines
    assert [] == (await apply(uses)).problems
    told = await apply(uses.replace("report", "nobody"))
    assert ["a.yaml:2: schedule 's': workflow: The namespace has no workflow 'nobody'."] == told.problems
    told = await apply(uses, "namespace: [", prune=True)
    assert ["b.yaml"] == [problem.partition(":")[0] for problem in told.problems]
    told = await apply(uses, prune=True)
    assert ["a.yaml:2: schedule 's': workflow: The namespace has no workflow 'report'."] == told.problems
    nodes = "nodes: [{id: s, type: trigger_schedule}, {id: w, type: core.noop}]"
    circle = [
        f"namespace: o\nworkflows: [{{name: {one}, {nodes}}}]\nschedules: [{{name: {one}, workflow: {two}, every: 1m}}]"
        for one, two in (("a", "b"), ("b", "a"))
    ]
    told = await apply(*circle)
    words = "1: a.yaml and b.yaml use objects of each other: put them into one file."
    assert [f"a.yaml:{words}", f"b.yaml:{words}"] == told.problems


async def test_two_at_once_wait_for_each_other(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them does it, the others find it done. Nobody waits for ever, a dry run neither."""
    async with applying(settings) as one, applying(settings) as other:
        told = await asyncio.gather(*(apply(NIGHTLY) for apply in (one, one, other, other)))
        assert [[], [], [], ["+ workflow report", "+ schedule nightly"]] == sorted(one.lines for one in told)
        assert [] == [problem for one in told for problem in one.problems]
        assert ["nightly"] == await names(database)
        monkeypatch.setattr(declarations, "LOCK_WAIT_SECONDS", 0.05)
        async with database.transaction() as connection:
            await declarations.lock(connection, ["shop"])
            for dry_run in (True, False):
                with pytest.raises(UnavailableError, match="apply of the namespace 'shop' is running"):
                    await one(NIGHTLY, dry_run=dry_run)


async def test_a_namespace_belongs_to_one_owner(apply: Applying, database: Database) -> None:
    """Whose its schedules are."""
    mia = await UserService(database).create(OPERATOR, UserInput(username="mia"))
    await apply(NIGHTLY, owner="mia")
    (job,) = (await state(database))["scheduled_jobs"]
    assert (mia.id, "user", str(mia.id)) == (job["user_profile_id"], job["owner_kind"], job["owner_id"])
    async with database.reading() as connection:
        told_of = "SELECT DISTINCT actor, on_behalf_of, via FROM audit_events WHERE owner_id = :owner AND via = 'file'"
        assert [("admin", "mia", "file")] == list(
            map(tuple, await connection.execute(text(told_of), {"owner": mia.id}))
        )
    told = await apply(NIGHTLY, prune=True)
    assert ["a.yaml:1: namespace: It belongs to the user 'mia', not to 'admin'."] == told.problems
    assert [] == (await apply(NIGHTLY, owner="mia")).problems
    for nobody in ("nobody", "plugin:core"):
        with pytest.raises(NotFoundError, match=f"no user '{nobody}'"):
            await apply(NIGHTLY, owner=nobody)


async def test_it_rings_and_without_redis_it_works_too(
    apply: Applying, settings: Settings, database: Database, redis: RedisPool, tmp_path: Path
) -> None:
    """For new ticks, and to call off what runs when it is pruned. What was not rung for, the workers find."""
    away = replace(settings, redis_url=f"unix://{tmp_path}/nobody.sock")
    for namespace, without in (("away", away), ("none", replace(settings, redis_url=""))):
        async with applying(without) as alone:
            assert [] == (await alone(NIGHTLY.replace("shop", namespace))).problems
    assert (["nightly", "nightly"], 0) == (await names(database), await redis.zcard(QUEUE))
    await apply(NIGHTLY)
    assert 1 == await redis.zcard(QUEUE)
    (job_id,) = (
        one["scheduled_job_id"] for one in (await state(database))["managed_schedules"] if one["namespace"] == "shop"
    )
    run = await ManualRunService(database, Ringer(Bell(redis))).run(OPERATOR, job_id, RunInput())
    async with redis.pubsub(ignore_subscribe_messages=True) as heard:
        await heard.subscribe(CANCEL_CHANNEL)
        await apply(EMPTY, prune=True)
        message = await until(heard.get_message)
    assert str(run.id).encode() == message["data"]


@pytest.mark.parametrize(("kind", "place"), [("schedules", "a.yaml:9"), ("workflows", "a.yaml:3")])
async def test_a_file_keeps_the_quotas_of_its_owner(
    settings: Settings, database: Database, kind: str, place: str
) -> None:
    """Nothing of a file is written whose objects do not fit; what is there already needs no room."""
    second = NIGHTLY.replace("shop", "depot")
    async with applying(replace(settings, **{f"quota_{kind}": 1})) as apply:
        assert [] == (await apply(NIGHTLY)).problems
        assert [] == (await apply(TWO_MINUTES)).problems
        told = await apply(second)
    (problem,) = told.problems
    assert problem.startswith(place), problem
    assert f"The owner may have 1 {kind} and has 1." in problem
    assert (["nightly"], ["report"]) == (await names(database), await names(database, "workflows"))


async def test_a_file_keeps_the_bounds_of_values(apply: Applying, settings: Settings, database: Database) -> None:
    """New and changed values are judged; what is stored already beyond them can be applied again and edited."""
    over = NIGHTLY + "    max_retries: 2000\n"
    (problem,) = (await apply(over)).problems
    assert "schedule 'nightly': max_retries: The value must not be greater than 1000." in problem
    async with applying(replace(settings, max_retries_limit=2000)) as raised:
        assert [] == (await raised(over)).problems
    assert [] == (await apply(over)).problems
    assert ["~ schedule nightly  interval_seconds: 60 -> 120"] == (await apply(over.replace("1m", "2m"))).lines
    (problem,) = (await apply(over.replace("2000", "2001"))).problems
    assert "max_retries" in problem
    (job,) = (await state(database))["scheduled_jobs"]
    assert (2000, 120) == (job["max_retries"], job["interval_seconds"])


async def test_secrets_in_files_are_those_of_the_owner(apply: Applying, carillon: Carillon, database: Database) -> None:
    """With the line of the node; a file with others', or for other hosts, is not applied."""
    mia = await carillon.member("mia")
    call = "{id: work, type: core.http_request, config: {url: 'https://a.example/', body: '{{ secret.TOKEN }}'}}"
    declared = NIGHTLY.replace("{id: work, type: core.noop}", call)
    told = await apply(declared, owner="mia")
    assert 1 == len(told.problems)
    assert "There is no secret 'TOKEN' for 'mia'." in told.problems[0]
    await mia.call("POST", "/secrets/", 201, json={"name": "TOKEN", "value": "v", "allowed_hosts": ["b.example"]})
    told = await apply(declared, owner="mia")
    assert "may not be sent to 'a.example'" in told.problems[0]
    assert [] == await names(database)
    await mia.call("PUT", "/secrets/TOKEN/", json={"allowed_hosts": ["*.example", "a.example"]})
    assert [] == (await apply(declared, owner="mia")).problems
    assert ["nightly"] == await names(database)
