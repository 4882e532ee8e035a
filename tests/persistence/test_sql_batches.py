"""Many rows in one statement."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from app.persistence.database import Database
from app.persistence.sql_batches import arrays_of, insert_many, run_batch
from app.persistence.tables import MishapRow

MANY = insert_many(MishapRow, ("subject_id", "state", "count", "error"))


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=6))
def test_no_row_gets_lost_in_what_rows_share(rows: list[tuple[int, ...]]) -> None:
    """The first column is whole; each other one is whole or of one value, which all rows have."""
    first, *others = arrays_of(MANY, [dict(zip(MANY.columns, row, strict=True)) for row in rows])
    assert [row[0] for row in rows] == first
    for number, array in enumerate(others, 1):
        values = [row[number] for row in rows]
        assert array == values or (array * len(rows) == values)


@pytest.mark.parametrize("states", [(1, 1), (1, 2)], ids=["the same in all", "different"])
async def test_rows_are_written_as_they_are(database: Database, states: tuple[int, int]) -> None:
    """Whether a column is the same in all of them or not."""
    ids = ["00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"]
    rows: list[dict[str, Any]] = [
        {"subject_id": one, "state": state, "count": 3, "error": "e"} for one, state in zip(ids, states, strict=True)
    ]
    async with database.transaction() as connection:
        await run_batch(connection, MANY, rows)
        found = await connection.execute(text("SELECT state FROM mishaps ORDER BY subject_id"))
        assert states == tuple(found.scalars())
