"""The ledger's counter: slots that did not fire are counted once, after the commit, whoever wrote their outcome.

Covers app.persistence.ledger.
"""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from app.config import Settings
from app.domain.ledger import LedgerEntry, LedgerOutcome
from app.domain.ticks import Tick
from app.persistence import ledger, recovery
from app.persistence.database import Database
from tests.support.carillon import Carillon, engine_of, make_due

SLOT = datetime(2026, 1, 1, tzinfo=UTC)


def counted(outcome: LedgerOutcome) -> float:
    """Return the counter's value for an outcome."""
    return REGISTRY.get_sample_value("carillon_slots_missed_total", {"outcome": outcome}) or 0.0


def entry(slot_count: int = 1) -> LedgerEntry:
    """Return an entry of missed slots."""
    last = SLOT if slot_count == 1 else SLOT.replace(day=2)
    return LedgerEntry(
        first_slot=SLOT, last_slot=last, slot_count=slot_count, outcome=LedgerOutcome.MISSED, reason="a test"
    )


async def test_a_transaction_that_is_rolled_back_counts_nothing(carillon: Carillon, database: Database) -> None:
    """It is done again by another transaction, which counts."""
    schedule = await carillon.schedule()
    before = counted(LedgerOutcome.MISSED)
    with pytest.raises(RuntimeError):
        async with database.transaction() as connection:
            await ledger.add(connection, [(UUID(schedule["id"]), entry(3))])
            raise RuntimeError
    # The connection is used again: nothing is left over from the transaction before.
    async with database.transaction() as connection:
        await connection.execute(text("SELECT 1"))
    assert before == counted(LedgerOutcome.MISSED)
    async with database.transaction() as connection:
        await ledger.add(connection, [(UUID(schedule["id"]), entry(3))])
        assert before == counted(LedgerOutcome.MISSED)
    assert before + 3 == counted(LedgerOutcome.MISSED)


async def test_a_quarantined_slot_is_counted(carillon: Carillon, database: Database) -> None:
    """It is missed, as the ledger says."""
    schedule = await carillon.schedule()
    await make_due(database, schedule)
    before = counted(LedgerOutcome.MISSED)
    async with database.transaction() as connection:
        assert await recovery.poison_schedule(connection, UUID(schedule["id"]), "a test")
    assert ["missed"] == [item["outcome"] for item in await carillon.ledger(schedule)]
    assert before + 1 == counted(LedgerOutcome.MISSED)


async def test_a_queued_slot_that_never_starts_is_counted(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Its execution is cancelled before it began; a manual run, which has no slot, is not counted."""
    schedule = await carillon.schedule(if_running="queue", interval_seconds=3600)
    async with engine_of(settings) as engine:
        for _ in range(2):
            due = await make_due(database, schedule)
            await engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
    runs = await carillon.runs(schedule)
    assert [("running", False), ("pending", False)] == [(run["status"], bool(run["finished_at"])) for run in runs]
    before = counted(LedgerOutcome.MISSED)
    await carillon.call("POST", f"/executions/{runs[1]['id']}/cancel/")
    assert before + 1 == counted(LedgerOutcome.MISSED)
    manual = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202, json={"if_running": "queue"})
    await carillon.call("POST", f"/executions/{manual['id']}/cancel/")
    assert before + 1 == counted(LedgerOutcome.MISSED)
