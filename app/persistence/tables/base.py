"""The base class of all tables: names of constraints, types of columns, and conditions that several modules use."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    DateTime,
    MetaData,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase

from app.domain.executions import ACTIVE

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


# Of an index that a migration creates in a large table: it is built after the migration, without blocking the table.
BUILT_LATE = {"built_late": True}
# Of an index that needs an extension of Postgres which may be missing.
NEEDS_TRIGRAMS = {"extension": "pg_trgm"}


def one_of(column: str, values: Any) -> str:
    """Return the SQL condition that a column holds one of these values."""
    listed = ", ".join(f"'{value}'" for value in sorted(values))
    return f"{column} IN ({listed})"


IS_ACTIVE_EXECUTION = one_of("status", ACTIVE)
# Whether workflow ``w`` has a guard, a breaker or a named limit.
IS_LIMITED = "(w.max_concurrent_runs IS NOT NULL OR w.breaker_threshold IS NOT NULL OR w.limit IS NOT NULL)"


class Base(DeclarativeBase):
    """The base class of all tables; timestamps have a time zone, JSON is jsonb."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own protocol
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
        str: Text,
    }
