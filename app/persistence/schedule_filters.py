"""Filters of schedules as SQL: what listed or selected schedules must have, and which table answers each order."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import OwnerKind, Source
from app.domain.health import LATE_AFTER, Health
from app.domain.schedules import Reason, Status
from app.persistence.pagination import estimated_rows
from app.persistence.sql_batches import fetch

# The shortest text that the indexes of texts find.
TRIGRAM = 3
# A shorter text is rare if at most this part of all schedules contains it.
RARE = 0.01
# Of a query for what matches: with less, the bitmap of 100,000 schedules names pages only, and all their rows are read.
SEARCH_MEGABYTES = 32
# In the words of partial indexes.
_IMPLIED = (
    ("status", Status.ACTIVE, "j.status <> 'active'"),
    ("status_reason", Reason.NONE, "j.status_reason <> ''"),
    ("owner_kind", OwnerKind.USER, "j.owner_kind <> 'user'"),
)
# What contains a text of one or two characters, by the index that has all of them.
SHORT = "short_parts(t.searched) @> ARRAY[lower({}::text)]"
_PLAIN = ("status", "status_reason", "owner_kind", "owner_id", "team_id")


class Kind(StrEnum):
    """The ways to say when a schedule is due."""

    INTERVAL = "interval"
    CRON = "cron"
    ONCE = "once"
    MONTHLY = "monthly"
    RRULE = "rrule"


_KINDS = {
    Kind.INTERVAL: "j.interval_seconds IS NOT NULL",
    Kind.CRON: "j.cron IS NOT NULL",
    Kind.ONCE: "(j.at IS NOT NULL OR j.after IS NOT NULL)",
    Kind.MONTHLY: "(j.every IS NOT NULL AND j.every <> 'rrule')",
    Kind.RRULE: "j.every = 'rrule'",
}


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What listed schedules must have; None does not filter."""

    status: str | None = None
    status_reason: str | None = None
    workflow_id: int | None = None
    owner_kind: str | None = None
    owner_id: str | None = None
    team_id: int | None = None
    # A part of the name, the key or the id.
    q: str | None = None
    # Whether few schedules contain ``q``, and an index of short texts finds them (``with_rarity``).
    q_is_rare: bool = False
    # Pairs of name and value, all of which a schedule must have.
    labels: tuple[tuple[str, str], ...] = ()
    health: Health | None = None
    namespace: str | None = None
    # A host that the workflow calls.
    target_host: str | None = None
    kind: Kind | None = None
    ids: tuple[UUID, ...] | None = None

    @property
    def need_plans_of_their_own(self) -> bool:
        """Return whether a plan has to know the values: what few schedules match needs another than what most do."""
        searched = self.q or self.labels or self.health or self.namespace or self.target_host
        return bool(searched or self.kind or self.owner_id)

    @property
    def are_searched(self) -> bool:
        """Return whether schedules are searched for what no index has in the order of a list."""
        return bool(self.q or self.labels or self.namespace or self.target_host or self.kind)

    @property
    def are_in_texts(self) -> bool:
        """Return whether a text or a kind is asked for, and nothing that ``schedule_texts`` has not."""
        return bool(self.q or self.kind) and self.in_texts == self

    @property
    def in_texts(self) -> "Filters":
        """Return those of the filters that ``schedule_texts`` answers."""
        return Filters(q=self.q, q_is_rare=self.q_is_rare, kind=self.kind, workflow_id=self.workflow_id)

    @property
    def are_resting(self) -> bool:
        """Return whether only schedules that are not active can match, and have no tick."""
        reasons = self.status_reason in RESTING_REASONS
        return self.health in RESTING or reasons or self.status not in {None, Status.ACTIVE}


NO_FILTERS = Filters()


class Stage(msgspec.Struct, frozen=True):
    """A part of a sorted list that one index answers."""

    source: str
    # The expression to sort by; None if the rows of the stage have no value, and are sorted by their ids alone.
    place: str | None
    condition: str = "TRUE"

    @property
    def table(self) -> str:
        """Return the table that the order is in, with its short name."""
        return self.source.partition(" JOIN ")[0]

    @property
    def has_texts(self) -> bool:
        """Return whether rows of ``schedule_texts`` are read."""
        return self.table == TEXTS_ALONE

    @property
    def owned(self) -> str:
        """Return the short name of the table that has the owner and the workflow of a row."""
        return "j" if self.source is DUE else self.table[-1]


# What searches look at, in the words of the indexes on ``scheduled_jobs``; ``schedule_texts`` has it as a column.
SEARCHED = "(lower(coalesce(j.key, '')) || chr(10) || lower(j.name))"
JOBS = "scheduled_jobs AS j"
DUE = "due_ticks AS d JOIN scheduled_jobs AS j ON j.id = d.id"
MARKED = "schedule_marks AS k JOIN scheduled_jobs AS j ON j.id = k.id"
TEXTS_ALONE = "schedule_texts AS t"
TEXTS = f"{TEXTS_ALONE} JOIN scheduled_jobs AS j ON j.id = t.id"
STAGES: dict[str, tuple[Stage, ...]] = {
    "created_at": (Stage(JOBS, "j.created_at"),),
    # In the order of characters, which Python has too: pages of several owners are merged.
    "name": (Stage(JOBS, 'j.name COLLATE "C"'),),
    # What has a tick is in ``due_ticks`` in this order; what has none comes after it.
    "next_run_at": (Stage(DUE, "d.next_run_at"), Stage(JOBS, None, "j.next_run_at IS NULL")),
    "last_attempt_at": (
        Stage(JOBS, "j.last_attempt_at", "j.last_attempt_at IS NOT NULL"),
        Stage(JOBS, None, "j.last_attempt_at IS NULL"),
    ),
}
NEVER_NULL = {"j.created_at", "k.created_at", 'j.name COLLATE "C"', "t.name", "d.next_run_at"}
BY_MARK = (Stage(MARKED, "k.created_at"),)
# Indexes of this order have the texts, or begin with the kind.
BY_NAME_AND_TEXT = (Stage(TEXTS, "t.name"),)
MARKS = {Health.FAILING, Health.NEVER_RAN}
OVERDUE = {Health.LATE, Health.SILENT}
RESTING = {Health.PAUSED, Health.DEAD, Health.INVALID, Health.DONE}
# An active schedule, which alone has a tick, has none of these reasons.
RESTING_REASONS = set(Reason) - {Reason.NONE, Reason.AWAITING_REVIEW, Reason.LEASE_EXPIRED, Reason.LEASE_REVOKED}


class Query:
    """Conditions in SQL, and the values of their parameters."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition in which ``{}`` stands for each value."""
        numbers = range(len(self.values) + 1, len(self.values) + 1 + len(values))
        self.conditions.append(condition.format(*(f"${number}" for number in numbers)))
        self.values += values

    def bind(self, value: Any) -> str:
        """Add a value for an expression, and return its parameter."""
        self.values.append(value)
        return f"${len(self.values)}"

    @property
    def text(self) -> str:
        """Return all conditions as one."""
        return " AND ".join(self.conditions) or "TRUE"


_USER_ID = "SELECT id FROM user_profiles WHERE username = $1"


async def with_owner_id(connection: AsyncConnection, filters: Filters) -> Filters:
    """Return filters that name the owner by the id: people name a user by the username."""
    owner = filters.owner_id
    if owner is None or owner.isdigit() or filters.owner_kind == OwnerKind.PLUGIN:
        return filters
    rows = await fetch(connection, _USER_ID, owner)
    return replace(filters, owner_id=str(rows[0][0])) if rows else filters


async def with_rarity(connection: AsyncConnection, filters: Filters) -> Filters:
    """Return filters that say whether few schedules contain a text of one or two characters."""
    q = filters.q
    return replace(filters, q_is_rare=await is_rare(connection, q)) if q and is_short(q) else filters


async def is_rare(connection: AsyncConnection, q: str) -> bool:
    """Return whether the planner expects few schedules to contain a short text.

    All that contain a rare text are read by an index. What many contain is soon found in any order.
    """
    expected = await estimated_rows(connection, f"SELECT FROM {TEXTS_ALONE} WHERE {SHORT.format('$1')}", [q])
    return expected <= RARE * await estimated_rows(connection, f"SELECT FROM {TEXTS_ALONE}")


def conditions(filters: Filters, source: Source, stage: Stage, now: datetime) -> Query:
    """Return the conditions of a list for one of its sources."""
    query = Query()
    if stage.condition != "TRUE":
        query.add(stage.condition)
    add_source(query, source, stage.owned)
    for name in _PLAIN:
        value = getattr(filters, name)
        if value is not None:
            query.add(f"j.{name} = {{}}", value)
    for name, value, implied in _IMPLIED:
        if getattr(filters, name) not in {None, value}:
            query.add(implied)
    if filters.status_reason in RESTING_REASONS and source.owner is not None:
        # In the words of the index of an owner's schedules that are not active. Those of all have an index by reason.
        query.add("j.status <> 'active'")
    if filters.owner_id is not None and source.owners is None and stage.place == "j.created_at":
        # Statistics may know one owner only. Then plans would search the schedules of all others for those of this one.
        for sign, end in ((">=", ("-infinity", UUID(int=0))), ("<=", ("infinity", UUID(int=2**128 - 1)))):
            query.add(f"(j.owner_id, j.created_at, j.id) {sign} ({{}}, '{end[0]}', '{end[1]}')", filters.owner_id)
    _add_text(query, filters, stage)
    _add_kind(query, filters.kind, stage)
    _add_searches(query, filters)
    _add_health(query, filters.health, stage, now)
    return query


def add_source(query: Query, source: Source, table: str) -> None:
    """Add the condition that a row belongs to a source."""
    if source.owner is not None:
        query.add(f"{table}.user_profile_id = {{}}", source.owner)
    elif source.owners is not None:
        query.add(f"{table}.user_profile_id = ANY({{}}::int[])", list(source.owners))
    if source.workflow_id is not None:
        query.add(f"{table}.workflow_id = {{}}", source.workflow_id)


def _add_text(query: Query, filters: Filters, stage: Stage) -> None:
    """Add the condition that the name or the key contains a text, or that it is the id."""
    q = filters.q
    if not q:
        return
    searched, name = ("t.searched", "t.name") if stage.has_texts else (SEARCHED, "j.name")
    if stage.has_texts and stage.place is None and filters.q_is_rare:
        query.add(SHORT, q)
        return
    contains = f"{searched} LIKE lower({{0}})"
    if "\n" in q:
        # Not partly in the key and partly in the name.
        contains += f" AND lower({name}) LIKE lower({{0}})"
    job_id = _as_id(q)
    if job_id is None:
        query.add(f"({contains})", containing(q))
    else:
        query.add(f"({contains} OR {stage.table[-1]}.id = {{1}})", containing(q), job_id)


def is_short(q: str) -> bool:
    """Return whether a text has no trigram, so that ``SHORT`` finds it; a line feed is where the name begins."""
    return len(q) < TRIGRAM and "\n" not in q


def _add_kind(query: Query, kind: Kind | None, stage: Stage) -> None:
    if kind is None:
        return
    if stage.has_texts:
        query.add("t.kind = {}", str(kind))
    else:
        query.add(_KINDS[kind])


def _add_searches(query: Query, filters: Filters) -> None:
    if filters.labels:
        # In the words of the index, which leaves out schedules without labels.
        query.add(
            "j.labels @> {}::text::jsonb AND j.labels <> '{{}}'", msgspec.json.encode(dict(filters.labels)).decode()
        )
    if filters.target_host is not None:
        # The first condition is that of the index, which cannot tell a host from a part of another.
        host = filters.target_host.lower()
        query.add(
            "j.workflow_id IN (SELECT w.id FROM workflows AS w WHERE w.target_hosts ILIKE {0} "
            "AND {1} = ANY(string_to_array(w.target_hosts, ' ')))",
            containing(host),
            host,
        )
    if filters.namespace is not None:
        query.add(
            "EXISTS (SELECT FROM managed_schedules AS n WHERE n.namespace = {} AND n.scheduled_job_id = j.id)",
            filters.namespace,
        )
    if filters.ids is not None:
        query.add("j.id = ANY({}::uuid[])", list(filters.ids))


def containing(part: str) -> str:
    """Return the pattern of ILIKE for texts that contain a part."""
    return f"%{escaped(part)}%"


def escaped(text: str) -> str:
    """Return the pattern of ILIKE for texts that are equal but for upper and lower case."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None


_IN_TIME = "(j.next_run_at IS NULL OR j.next_run_at >= {})"
_FAILING = "(j.last_error_at IS NOT NULL AND (j.last_success_at IS NULL OR j.last_error_at > j.last_success_at))"


def _add_health(query: Query, health: Health | None, stage: Stage, now: datetime) -> None:
    """Add the conditions for what ``app.domain.health`` says of a schedule; overdue ones are read in another way."""
    if health is None:
        return
    if health in RESTING:
        query.add("j.status <> 'active'")
    match health:
        case Health.INVALID:
            query.add("j.status_reason = 'invalid_spec' AND j.status_reason <> ''")
        case Health.PAUSED:
            query.add("j.status = 'paused' AND j.status_reason <> 'invalid_spec'")
        case Health.DEAD | Health.DONE:
            query.add("j.status = {}", str(health))
        case Health.HEALTHY:
            query.add(
                f"j.status = 'active' AND j.last_attempt_at IS NOT NULL AND NOT {_FAILING} AND {_IN_TIME}",
                now - LATE_AFTER,
            )
        case _ if stage.source is MARKED:
            query.add(f"k.mark = {{}} AND j.status = 'active' AND {_IN_TIME}", str(health), now - LATE_AFTER)
        case _:
            query.add(
                "EXISTS (SELECT FROM schedule_marks AS k WHERE k.id = j.id AND k.mark = {}) AND j.status = 'active' "
                f"AND {_IN_TIME}",
                str(health),
                now - LATE_AFTER,
            )


def unordered(filters: Filters, source: Source, now: datetime) -> tuple[Stage, Query]:
    """Return the tables and the conditions of what matches in one source, for queries without an order."""
    (stage,) = BY_MARK if filters.health in MARKS else STAGES["created_at"]
    if filters.q_is_rare or (filters.q and is_short(filters.q) and not filters.are_resting):
        # No other index finds it, but those of schedules that rest.
        stage = Stage(TEXTS, None)
    return stage, conditions(filters, source, stage, now)


def narrowest(filters: Filters, source: Source, now: datetime, field: str | None = None) -> tuple[Stage, Query]:
    """Return the same from the narrowest table that has it all, and the value to sort by as the stage's place."""
    if filters.are_in_texts and field in {None, "name", "created_at"}:
        stage = Stage(TEXTS_ALONE, None)
        query, place = conditions(filters, source, stage, now), f"t.{field}"
    else:
        stage, query = unordered(filters, source, now)
        place = 'j.name COLLATE "C"' if field == "name" else f"j.{field}"
    return replace(stage, place=None if field is None else place), query
