"""What holds things back: breakers, switches, locks."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    func,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.breakers import BreakerState
from app.persistence.tables.base import Base, one_of


class CircuitBreakerRow(Base):
    """The breaker of a workflow, from its first change on."""

    __tablename__ = "circuit_breakers"
    __table_args__ = (
        CheckConstraint(one_of("state", BreakerState), name="state_known"),
        CheckConstraint("failure_count >= 0", name="failure_count_not_negative"),
        CheckConstraint("(opened_at IS NULL) = (state = 'closed')", name="opened_unless_closed"),
        CheckConstraint("probe_execution_id IS NULL OR state = 'half_open'", name="probe_only_half_open"),
    )

    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), primary_key=True)
    state: Mapped[str]
    failure_count: Mapped[int]
    opened_at: Mapped[datetime | None]
    probe_execution_id: Mapped[UUID | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class CircuitBreakerTransitionRow(Base):
    """A change of a breaker's state, and why."""

    __tablename__ = "circuit_breaker_transitions"
    __table_args__ = (
        CheckConstraint(one_of("from_state", BreakerState), name="from_state_known"),
        CheckConstraint(one_of("to_state", BreakerState), name="to_state_known"),
        CheckConstraint("from_state <> to_state", name="state_changed"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), index=True)
    from_state: Mapped[str]
    to_state: Mapped[str]
    reason: Mapped[str]
    at: Mapped[datetime]
    execution_id: Mapped[UUID | None]


class SwitchRow(Base):
    """Something that is turned on or off at run time, for all processes at once."""

    __tablename__ = "switches"

    name: Mapped[str] = mapped_column(primary_key=True)
    is_on: Mapped[bool]
    changed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class LockRow(Base):
    """The right to do what only one may do at a time, for as long as its lease lasts. It cannot stick."""

    __tablename__ = "locks"

    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[UUID]
    expires_at: Mapped[datetime]


class MishapRow(Base):
    """How often a schedule or an execution could not be handled, in the state that it is in."""

    __tablename__ = "mishaps"

    subject_id: Mapped[UUID] = mapped_column(primary_key=True)
    # The generation of a schedule, the token of an execution.
    state: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]
    error: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
