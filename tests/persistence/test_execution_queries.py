"""Filters by status find their rows by an index, however many runs succeeded."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from app.config import Settings
from app.domain.access import Actor, OwnerKind, Role
from app.domain.executions import ExecutionStatus
from app.engine.housekeeping import Housekeeper
from app.persistence import execution_queries, retention
from app.persistence.database import Database
from app.persistence.pagination import Part
from tests.persistence.past import give_past
from tests.support.carillon import Carillon, engine_of, make_due

FAILING = {"id": "work", "type": "core.fail", "config": {"message": "no"}}
ADMIN, MEMBER = (Actor(1, "x", role, OwnerKind.USER) for role in (Role.ADMIN, Role.MEMBER))
SOMETHING = UUID(int=1)


class Watched:
    """A connection that remembers what it was asked."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.asked: list[Any] = []

    async def execute(self, statement: Any, *values: Any) -> Any:
        """Ask, and remember it."""
        self.asked.append(statement)
        return await self._connection.execute(statement, *values)

    async def plan(self) -> str:
        """How Postgres goes about the first question for executions."""
        question = next(one for one in self.asked if "workflow_executions" in str(one) and "LIMIT" in str(one))
        dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
        compiled = question.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        rows = await self._connection.execute(text("EXPLAIN " + str(compiled).replace(":", r"\:")))
        return "\n".join(rows.scalars())


@pytest.mark.parametrize(
    ("actor", "wanted", "index"),
    [
        (ADMIN, {}, "newest"),
        (MEMBER, {}, "newest_of_owner"),
        (ADMIN, {"workflow_id": 1}, "newest_of_workflow"),
        (ADMIN, {"entity_type": "webhook", "entity_id": "1"}, "newest_of_entity"),
    ],
)
async def test_a_filter_by_an_end_uses_its_index(
    database: Database, actor: Actor, wanted: dict[str, Any], index: str
) -> None:
    """What did not succeed stands in a narrow table."""
    async with database.reading() as connection:
        watched = Watched(connection)
        await execution_queries.page(watched, actor.reach(), {**wanted, "status": "failed"}, Part(50))  # type: ignore[arg-type]
        plan = await watched.plan()
    assert f"ix_unsuccessful_executions_{index} " in plan


async def test_a_filter_by_schedule_and_end_uses_its_index(carillon: Carillon, database: Database) -> None:
    """The same within one schedule."""
    schedule = await carillon.schedule()
    async with database.reading() as connection:
        watched = Watched(connection)
        wanted = {"scheduled_job_id": UUID(schedule["id"]), "status": "failed"}
        await execution_queries.page(watched, ADMIN.reach(), wanted, Part(50))  # type: ignore[arg-type]
        assert "ix_unsuccessful_executions_newest_of_job " in await watched.plan()


@pytest.mark.parametrize("status", ["pending", "running"])
async def test_a_filter_by_what_is_under_way_reads_what_is_under_way(database: Database, status: str) -> None:
    """And not the whole history."""
    async with database.reading() as connection:
        watched = Watched(connection)
        await execution_queries.page(watched, MEMBER.reach(), {"status": status}, Part(50))  # type: ignore[arg-type]
        assert "active_executions" in await watched.plan()


async def test_each_status_is_found_by_its_filter(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Whatever way a run ended, or has not ended yet."""
    made: dict[str, str] = {}
    for status, workflow in (("success", await carillon.workflow()), ("failed", await carillon.workflow(FAILING))):
        schedule = await carillon.schedule(workflow)
        due = await make_due(database, schedule)
        async with engine_of(settings) as engine:
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        made[status] = (await carillon.runs(schedule))[0]["id"]
    waiting = await carillon.schedule()
    made["pending"] = (await carillon.call("POST", f"/schedules/{waiting['id']}/run/", 202))["id"]
    other = await carillon.schedule()
    run = await carillon.call("POST", f"/schedules/{other['id']}/run/", 202)
    made["cancelled"] = (await carillon.call("POST", f"/executions/{run['id']}/cancel/"))["id"]
    found: dict[str, str] = {}
    for status in ExecutionStatus:
        answer = await carillon.call("GET", "/executions/", params={"status": status})
        found.update((status.value, item["id"]) for item in answer["items"])
        assert len(answer["items"]) == answer["total"]
    assert made == found


async def test_a_member_finds_no_runs_of_another_by_the_schedule(carillon: Carillon, database: Database) -> None:
    """Nor is the whole history of the schedule gone through for it."""
    schedule = await carillon.schedule()
    await give_past(database, schedule, 5)
    member = await carillon.member()
    answer = await member.call("GET", "/executions/", params={"scheduled_job_id": schedule["id"]})
    assert ([], 0) == (answer["items"], answer["total"])


async def test_what_ended_before_is_added_in_parts(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all of it is there, filters go through the history itself: the answer is the same."""
    schedule = await carillon.schedule()
    async with database.transaction() as connection:
        await connection.execute(text("ALTER TABLE workflow_executions DISABLE TRIGGER keep_unsuccessful"))
    await give_past(database, schedule, 25, "failed")
    async with database.transaction() as connection:
        await connection.execute(text("ALTER TABLE workflow_executions ENABLE TRIGGER keep_unsuccessful"))
        statement = "INSERT INTO backfills VALUES ('unsuccessful_executions', 'ffffffff-ffff-ffff-ffff-ffffffffffff')"
        await connection.execute(text(statement))
    monkeypatch.setattr(execution_queries, "MOST_ROWS", 10)
    keeper, seen = Housekeeper(database, 0), []
    for _ in range(4):
        answer = await carillon.call("GET", "/executions/", params={"status": "failed"})
        async with database.reading() as connection:
            rows = await connection.execute(text("SELECT count(*) FROM unsuccessful_executions"))
            seen.append((answer["total"], rows.scalar_one()))
        await keeper.step()
    assert [(25, 0), (25, 10), (25, 20), (25, 25)] == seen
    async with database.reading() as connection:
        assert await execution_queries.unsuccessful_is_complete(connection)


async def test_it_goes_with_the_executions(carillon: Carillon, database: Database) -> None:
    """With a deleted schedule, and with a week that is dropped as a whole."""
    schedules = [await carillon.schedule() for _ in range(2)]
    for schedule in schedules:
        await give_past(database, schedule, 5, "failed")
    await carillon.call("DELETE", f"/schedules/{schedules[0]['id']}/", 204)
    await Housekeeper(database, 0).step()
    assert 5 == await counted(database)
    for week in await weeks_there_are(database):
        await retention.drop_week(database, week)
    async with database.transaction() as connection:
        assert 5 == await execution_queries.drop_unsuccessful_orphans(connection, datetime.now(UTC))
    assert 0 == await counted(database)


async def test_the_end_of_a_run_stays_on_its_page(carillon: Carillon, settings: Settings, database: Database) -> None:
    """No index holds what the end of a run changes: else every end would write to all of them."""
    async with database.reading() as connection:
        names = await connection.execute(
            text(
                "SELECT DISTINCT a.attname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid "
                "JOIN pg_attribute AS a ON a.attrelid = c.oid WHERE c.relname = 'workflow_executions' "
                "AND (a.attnum = ANY(i.indkey::int2[]) "
                "OR pg_get_expr(i.indpred, i.indrelid) ~ ('\\m' || a.attname || '\\M'))"
            )
        )
        indexed = set(names.scalars())
    assert {"id", "user_profile_id", "scheduled_job_id", "workflow_id", "entity_type", "entity_id"} == indexed


async def counted(database: Database) -> int:
    """How many rows there are."""
    async with database.reading() as connection:
        found: int = (await connection.execute(text("SELECT count(*) FROM unsuccessful_executions"))).scalar_one()
    return found


async def weeks_there_are(database: Database) -> list[retention.Week]:
    """The weeks of executions."""
    return [week for week in retention.weeks(datetime.now(UTC)) if week.table == "workflow_executions"]
