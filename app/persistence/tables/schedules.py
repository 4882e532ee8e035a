"""Tables of workflows and schedules, their revisions, due ticks and the ledger."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    String,
    Text,
    func,
    literal_column,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.access import OwnerKind
from app.domain.ledger import LedgerOutcome
from app.domain.plugin_schedules import EnsureMode
from app.domain.revisions import WORKFLOW_ACTIONS, Action
from app.domain.schedules import CatchUp, IfRunning, Status
from app.persistence.tables.base import BUILT_LATE, NEEDS_TRIGRAMS, Base, one_of


def _unique_key(table: str) -> Index:
    """Return the index by which a key stands for one object of an owner."""
    return Index(f"uq_{table}_key", "user_profile_id", "key", unique=True, postgresql_where=text("key IS NOT NULL"))


def _by_labels(table: str) -> Index:
    return Index(
        f"ix_{table}_labels",
        "labels",
        postgresql_using="gin",
        postgresql_ops={"labels": "jsonb_path_ops"},
        postgresql_where=text("labels <> '{}'"),
        info=BUILT_LATE,
    )


def _by_texts(table: str, *columns: str) -> Index:
    """Return the index for texts that contain another one."""
    return Index(
        f"ix_{table}_texts",
        *columns,
        postgresql_using="gin",
        postgresql_ops=dict.fromkeys(columns, "gin_trgm_ops"),
        info=BUILT_LATE | NEEDS_TRIGRAMS,
    )


# What searches of schedules look at, as in ``ScheduleTextRow.searched``; as Postgres writes it.
_SEARCHED = "((lower(COALESCE(key, ''::text)) || chr(10)) || lower(name::text))"


def _by_limit(table: str) -> Index:
    return Index(f"ix_{table}_limit", "limit", postgresql_where=text('"limit" IS NOT NULL'))


class WorkflowRow(Base):
    """A workflow: nodes and edges that a schedule runs."""

    __tablename__ = "workflows"
    __table_args__ = (
        CheckConstraint(one_of("owner_kind", OwnerKind), name="owner_kind_known"),
        CheckConstraint("max_concurrent_runs >= 1", name="max_concurrent_runs_positive"),
        CheckConstraint("breaker_threshold >= 1", name="breaker_threshold_positive"),
        CheckConstraint("breaker_reset_seconds >= 1", name="breaker_reset_positive"),
        _unique_key("workflows"),
        _by_labels("workflows"),
        Index("ix_workflows_name", text('name COLLATE "C"'), "id", info=BUILT_LATE),
        _by_texts("workflows", "name", "key", "target_hosts"),
        _by_limit("workflows"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    owner_kind: Mapped[str] = mapped_column(server_default=OwnerKind.USER)
    owner_id: Mapped[str]
    name: Mapped[str] = mapped_column(String(255))
    nodes: Mapped[list[Any]]
    edges: Mapped[list[Any]]
    active: Mapped[bool] = mapped_column(server_default=text("true"))
    max_concurrent_runs: Mapped[int | None]
    breaker_threshold: Mapped[int | None]
    breaker_reset_seconds: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    # The owner's id again if the owner is a team.
    team_id: Mapped[int | None]
    key: Mapped[str | None]
    labels: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    # The hosts that its nodes name, separated by blanks, for searches.
    target_hosts: Mapped[str] = mapped_column(server_default="")
    # The name of the limit that its runs need a permit of.
    limit: Mapped[str | None]


class ScheduledJobRow(Base):
    """A schedule: what to run, when, and its state. Its pending tick is (id, generation)."""

    __tablename__ = "scheduled_jobs"
    __table_args__ = (
        CheckConstraint(one_of("status", Status), name="status_known"),
        CheckConstraint(one_of("owner_kind", OwnerKind), name="owner_kind_known"),
        CheckConstraint(one_of("if_running", IfRunning), name="if_running_known"),
        CheckConstraint(one_of("catch_up", CatchUp), name="catch_up_known"),
        CheckConstraint("interval_seconds >= 1", name="interval_positive"),
        # Exactly one of these says when.
        CheckConstraint("num_nonnulls(interval_seconds, every, cron, at, after) = 1", name="one_kind_of_spec"),
        CheckConstraint("jitter_seconds >= 0 AND max_queued >= 0", name="allowances_not_negative"),
        CheckConstraint("timeout_seconds >= 1", name="timeout_positive"),
        CheckConstraint("total_repeats >= 0 AND max_retries >= 0", name="limits_not_negative"),
        CheckConstraint(
            "current_repeat >= 0 AND current_retry >= 0 AND run_count >= 0 AND error_count >= 0",
            name="counters_not_negative",
        ),
        # Nothing fires while paused, after done or dead.
        CheckConstraint("next_run_at IS NULL OR status = 'active'", name="only_active_is_planned"),
        # A pending tick is whole: a slot and a due time, and never due before its slot.
        CheckConstraint("(next_slot IS NULL) = (next_run_at IS NULL)", name="tick_whole"),
        CheckConstraint("next_run_at >= next_slot", name="never_early"),
        CheckConstraint("(dead_at IS NOT NULL) = (status = 'dead')", name="dead_since"),
        CheckConstraint(
            "total_repeats = 0 OR current_repeat < total_repeats OR status <> 'active' OR num_nonnulls(at, after) = 1",
            name="done_at_the_limit",
        ),
        # A plugin looks its schedules up by name.
        Index(
            "uq_scheduled_jobs_name_of_plugin",
            "owner_id",
            "name",
            unique=True,
            postgresql_where=text("owner_kind = 'plugin'"),
        ),
        # Schedules that are not active, for lists by status and their counts.
        Index("ix_scheduled_jobs_resting", "status", postgresql_where=text("status <> 'active'")),
        # With the texts, and the columns that they are made of: only then Postgres reads them from the index alone.
        *(
            Index(
                f"ix_scheduled_jobs_{name}",
                *(*first, "status", "created_at", "id", text(_SEARCHED)),
                postgresql_where=text("status <> 'active'"),
                postgresql_include=["status_reason", "name", "key"],
                info=BUILT_LATE,
            )
            for name, first in (("resting_texts", ()), ("owner_resting_texts", ("user_profile_id",)))
        ),
        # Schedules that wait for their spec to become valid again.
        Index("ix_scheduled_jobs_invalid", "id", postgresql_where=text("status_reason = 'invalid_spec'")),
        # Pauses that end by themselves.
        Index(
            "ix_scheduled_jobs_paused_until",
            "paused_until",
            postgresql_where=text("paused_until IS NOT NULL"),
            info=BUILT_LATE,
        ),
        # Schedules that are deleted some time after they are done.
        Index(
            "ix_scheduled_jobs_deleted_after",
            "id",
            postgresql_where=text("status = 'done' AND delete_after_seconds > 0"),
            info=BUILT_LATE,
        ),
        # Lists by what only few schedules have.
        Index(
            "ix_scheduled_jobs_reason",
            *("status_reason", "created_at", "id"),
            postgresql_where=text("status_reason <> ''"),
            info=BUILT_LATE,
        ),
        Index(
            "ix_scheduled_jobs_of_plugins",
            *("created_at", "id"),
            postgresql_where=text("owner_kind <> 'user'"),
            info=BUILT_LATE,
        ),
        # Lists of the kinds that few schedules have; the other kinds are found among all.
        Index(
            "ix_scheduled_jobs_rrule", *("created_at", "id"), postgresql_where=text("every = 'rrule'"), info=BUILT_LATE
        ),
        # Schedules that name a stored calendar.
        Index(
            "ix_scheduled_jobs_calendars",
            "calendar_versions",
            postgresql_using="gin",
            postgresql_where=text("calendar_versions <> '{}'"),
            info=BUILT_LATE,
        ),
        Index("ix_scheduled_jobs_owner_id", "owner_id", "created_at", "id", info=BUILT_LATE),
        # No index holds a column that every tick changes: what is due is in ``due_ticks``.
        Index("ix_scheduled_jobs_owner_newest", "user_profile_id", "created_at", "id"),
        Index("ix_scheduled_jobs_newest", "created_at", "id"),
        Index("ix_scheduled_jobs_workflow", "workflow_id"),
        Index("ix_scheduled_jobs_lease", "lease_id", postgresql_where=text("lease_id IS NOT NULL")),
        _unique_key("scheduled_jobs"),
        _by_labels("scheduled_jobs"),
        Index("ix_scheduled_jobs_name", text('name COLLATE "C"'), "id", info=BUILT_LATE),
        Index("ix_scheduled_jobs_owner_name", "user_profile_id", text('name COLLATE "C"'), "id", info=BUILT_LATE),
        # Whole names, whatever their case: the trigrams of one are also those of every longer name that begins so.
        Index("ix_scheduled_jobs_whole_name", text('lower(name) COLLATE "C"'), "created_at", "id", info=BUILT_LATE),
        Index(
            "ix_scheduled_jobs_searched",
            literal_column(_SEARCHED).label("searched"),
            postgresql_using="gin",
            postgresql_ops={"searched": "gin_trgm_ops"},
            info=BUILT_LATE | NEEDS_TRIGRAMS,
        ),
        _by_limit("scheduled_jobs"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"))
    owner_kind: Mapped[str] = mapped_column(server_default=OwnerKind.USER)
    owner_id: Mapped[str]
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(255))
    description: Mapped[str]
    trigger_node_id: Mapped[str | None]
    trigger_payload: Mapped[dict[str, Any]]
    interval_seconds: Mapped[float | None]
    every: Mapped[str | None]
    cron: Mapped[str | None]
    # Valid while ``every`` is 'rrule': release 0.1.0 leaves it in place when it stores another spec.
    rrule: Mapped[str | None]
    at: Mapped[datetime | None]
    after: Mapped[str | None]
    timezone: Mapped[str] = mapped_column(server_default="UTC")
    jitter_seconds: Mapped[int] = mapped_column(server_default="0")
    only_between: Mapped[str | None]
    not_on: Mapped[list[Any]] = mapped_column(server_default="[]")
    exclude_calendars: Mapped[list[Any]] = mapped_column(server_default="[]")
    only_calendars: Mapped[list[Any]] = mapped_column(server_default="[]")
    # The stored calendars among them by name: the id of the calendar and the digest of its content.
    calendar_versions: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    start_at: Mapped[datetime | None]
    end_at: Mapped[datetime | None]
    total_repeats: Mapped[int]
    max_retries: Mapped[int]
    backoff_base_seconds: Mapped[int | None]
    timeout_seconds: Mapped[int]
    catch_up: Mapped[str]
    misfire_grace_seconds: Mapped[int]
    if_running: Mapped[str]
    max_queued: Mapped[int] = mapped_column(server_default="1")
    delete_after_seconds: Mapped[int | None]
    status: Mapped[str]
    status_reason: Mapped[str]
    generation: Mapped[int] = mapped_column(BigInteger)
    anchor_at: Mapped[datetime]
    cadence_slot: Mapped[datetime | None]
    next_slot: Mapped[datetime | None]
    next_run_at: Mapped[datetime | None]
    next_attempt: Mapped[int]
    last_slot: Mapped[datetime | None]
    current_repeat: Mapped[int]
    current_retry: Mapped[int]
    run_count: Mapped[int]
    error_count: Mapped[int]
    last_error: Mapped[str]
    last_error_at: Mapped[datetime | None]
    last_outcome: Mapped[str | None]
    last_attempt_at: Mapped[datetime | None]
    last_execution_id: Mapped[UUID | None]
    last_run_at: Mapped[datetime | None]
    last_fired_at: Mapped[datetime | None]
    last_success_at: Mapped[datetime | None]
    last_success_execution_id: Mapped[UUID | None]
    dead_at: Mapped[datetime | None]
    # When a pause ends by itself. No constraint ties it to the status: older workers do not know it.
    paused_until: Mapped[datetime | None]
    # Whether there are rows of ``slot_skips``.
    has_skips: Mapped[bool] = mapped_column(server_default=text("false"))
    # The W3C trace context of the request that created or changed it last, if requests are traced.
    trace_context: Mapped[str | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    # The owner's id again if the owner is a team.
    team_id: Mapped[int | None]
    key: Mapped[str | None]
    labels: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    # The name of the limit that its runs need a permit of.
    limit: Mapped[str | None]
    # The lease of the agent that made it, when the lease ends, and the runs that are charged to it.
    lease_id: Mapped[int | None] = mapped_column(ForeignKey("agent_leases.id", ondelete="SET NULL"))
    lease_ends_at: Mapped[datetime | None]
    lease_runs: Mapped[int] = mapped_column(server_default="0")
    # The transaction of the last change that is no tick: the row has the same ``xmin`` until something else is written.
    edited_xid: Mapped[int | None] = mapped_column(
        BigInteger, server_default=text("pg_current_xact_id()::text::bigint")
    )


class SlotSkipRow(Base):
    """A slot to come that somebody asked to leave out. The tick that accounts for the slot deletes it."""

    __tablename__ = "slot_skips"

    scheduled_job_id: Mapped[UUID] = mapped_column(
        ForeignKey("scheduled_jobs.id", ondelete="CASCADE"), primary_key=True
    )
    slot: Mapped[datetime] = mapped_column(primary_key=True)
    author: Mapped[str]
    at: Mapped[datetime]
    note: Mapped[str]


class ScheduleMarkRow(Base):
    """What marks a schedule: it never ran, or its last run did not succeed. Triggers on ``scheduled_jobs`` write it.

    No index of ``scheduled_jobs`` can say so: it would hold columns that every tick changes.
    """

    __tablename__ = "schedule_marks"
    __table_args__ = (
        CheckConstraint(one_of("mark", ("failing", "never_ran")), name="mark_known"),
        Index("ix_schedule_marks_newest", "mark", "created_at", "id"),
        Index("ix_schedule_marks_owner", "user_profile_id", "mark", "created_at", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    mark: Mapped[str]
    user_profile_id: Mapped[int]
    workflow_id: Mapped[int]
    created_at: Mapped[datetime]


class ScheduleTextRow(Base):
    """The texts of a schedule that searches look at. Triggers on ``scheduled_jobs`` write it; ticks fire none of them.

    Its rows are narrow and no tick changes them, so that an index answers searches in the order of names by itself.
    """

    __tablename__ = "schedule_texts"
    __table_args__ = (
        CheckConstraint(one_of("kind", ("cron", "interval", "monthly", "once", "rrule")), name="kind_known"),
        *(
            Index(f"ix_schedule_texts_{name}", *columns, "id", postgresql_include=["searched"], info=BUILT_LATE)
            for name, columns in (
                ("name", ("name",)),
                ("owner_name", ("user_profile_id", "name")),
                ("workflow_name", ("workflow_id", "name")),
            )
        ),
        Index(
            "ix_schedule_texts_searched",
            "searched",
            postgresql_using="gin",
            postgresql_ops={"searched": "gin_trgm_ops"},
            info=BUILT_LATE | NEEDS_TRIGRAMS,
        ),
        # Schedules of a kind, of all owners or of one, whose texts are read from the index alone.
        Index(
            "ix_schedule_texts_kind",
            *("kind", "user_profile_id", "name", "id"),
            postgresql_include=["searched", "created_at"],
            info=BUILT_LATE,
        ),
        # All texts of one or two characters, which have no trigram.
        Index("ix_schedule_texts_short", text("short_parts(searched)"), postgresql_using="gin", info=BUILT_LATE),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_profile_id: Mapped[int]
    workflow_id: Mapped[int]
    created_at: Mapped[datetime]
    # In the order of characters, as lists are sorted.
    name: Mapped[str] = mapped_column(Text(collation="C"))
    # The key, a line feed and the name, in lower case: no key has a line feed.
    searched: Mapped[str] = mapped_column(Text(collation="C"))
    # The way to say when it is due.
    kind: Mapped[str] = mapped_column(Text(collation="C"))


class PluginScheduleRow(Base):
    """What a plugin asked for last under a name.

    No foreign key to the schedule: a record whose schedule is gone says that somebody has deleted it.
    """

    __tablename__ = "plugin_schedules"

    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    scheduled_job_id: Mapped[UUID | None] = mapped_column(index=True)
    version: Mapped[int]
    wanted: Mapped[dict[str, Any]]
    # The last mode: with ``enforce`` a record without a schedule says nothing, and is deleted.
    mode: Mapped[str] = mapped_column(server_default=EnsureMode.ADOPT)
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class DueTickRow(Base):
    """When each pending tick is due. Triggers on ``scheduled_jobs`` maintain it; no other code writes to it."""

    __tablename__ = "due_ticks"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    next_run_at: Mapped[datetime] = mapped_column(index=True)


class ScheduleRevisionRow(Base):
    """A change of a schedule: who made it, when, and how the schedule was from then on."""

    __tablename__ = "schedule_revisions"
    __table_args__ = (
        CheckConstraint(one_of("action", Action), name="action_known"),
        Index("ix_schedule_revisions_newest_of_job", "scheduled_job_id", "at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    # No foreign key: the revisions of a deleted schedule are deleted in small parts.
    scheduled_job_id: Mapped[UUID]
    at: Mapped[datetime]
    # None if Carillon itself made the change. No foreign key: the history outlives the user.
    user_profile_id: Mapped[int | None]
    author: Mapped[str]
    action: Mapped[str]
    changes: Mapped[dict[str, Any]]
    note: Mapped[str]
    snapshot: Mapped[dict[str, Any]]


class WorkflowRevisionRow(Base):
    """A change of a workflow: who made it, when, and what was different before and after."""

    __tablename__ = "workflow_revisions"
    __table_args__ = (
        CheckConstraint(one_of("action", WORKFLOW_ACTIONS), name="action_known"),
        Index("ix_workflow_revisions_newest", "workflow_id", "id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"))
    at: Mapped[datetime]
    # None for changes by files. No foreign key: the history outlives the user.
    user_profile_id: Mapped[int | None]
    author: Mapped[str]
    action: Mapped[str]
    changes: Mapped[dict[str, Any]]
    changes_bytes: Mapped[int]
    note: Mapped[str]


class LedgerEntryRow(Base):
    """A slot, or a range of neighbouring slots, that did not fire, and why. The partitions are weeks."""

    __tablename__ = "ledger_entries"
    __table_args__ = (
        CheckConstraint(one_of("outcome", LedgerOutcome), name="outcome_known"),
        CheckConstraint("first_slot <= last_slot AND slot_count >= 1", name="range_sane"),
        CheckConstraint("(slot_count = 1) = (first_slot = last_slot)", name="count_fits"),
        Index("ix_ledger_entries_newest_of_job", "scheduled_job_id", "last_slot"),
        # For the figures of a minute.
        Index(
            "ix_ledger_entries_slots",
            "first_slot",
            postgresql_using="brin",
            postgresql_with={"autosummarize": "on"},
            info=BUILT_LATE,
        ),
        {"postgresql_partition_by": "RANGE (first_slot)"},
    )

    # No foreign key, for the same reasons as in ``WorkflowExecutionRow``.
    scheduled_job_id: Mapped[UUID] = mapped_column(primary_key=True)
    first_slot: Mapped[datetime] = mapped_column(primary_key=True)
    last_slot: Mapped[datetime]
    slot_count: Mapped[int] = mapped_column(BigInteger)
    outcome: Mapped[str]
    reason: Mapped[str]
    execution_id: Mapped[UUID | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
