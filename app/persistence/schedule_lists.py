"""Lists of schedules: filtered, sorted, and read page by page with what they show beside their rows.

The queries go to the driver directly, and are planned with the values of their parameters: a filter that few schedules
match needs another plan than one that most do.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.access import OwnerKind, Reach, Source
from app.domain.bulk_operations import BulkAction, RowState
from app.domain.health import LATE_AFTER, Health, health_of
from app.domain.schedules import Reason, Status
from app.persistence.calendars import with_calendars
from app.persistence.pagination import (
    COUNTED,
    FRESH_SECONDS,
    KnownTotals,
    Page,
    Part,
    cursor_of,
    estimated_rows,
    merged,
    place_of,
    read_merged,
)
from app.persistence.schedules import CALENDAR_MARK, COLUMNS, from_record, stored_values
from app.persistence.sql_batches import fetch, type_of
from app.persistence.tables import ScheduledJobRow

# Overdue schedules are few, unless nothing fires them. More are not looked at for a list by health.
MOST_OVERDUE = 5_000
# So many schedules are searched for a text in the order of a list, before all that have it are collected and sorted.
MOST_WALKED = 5_000
COLLECTING_MEGABYTES = 32
# A list is not counted if the planner expects so many times ``COUNTED``, and of the newest so many schedules at least
# this part matches of what that lets expect.
SURELY_LONG = 2
SAMPLED = 2_000
AGREEING = 0.5
# In the words of partial indexes.
_IMPLIED = (
    ("status", Status.ACTIVE, "j.status <> 'active'"),
    ("status_reason", Reason.NONE, "j.status_reason <> ''"),
    ("owner_kind", OwnerKind.USER, "j.owner_kind <> 'user'"),
)
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


class Sort(StrEnum):
    """The orders of a list; schedules without the value come last."""

    NEWEST = "-created_at"
    OLDEST = "created_at"
    NAME = "name"
    NAME_DESCENDING = "-name"
    NEXT_RUN = "next_run_at"
    NEXT_RUN_DESCENDING = "-next_run_at"
    LAST_ATTEMPT = "-last_attempt_at"
    LAST_ATTEMPT_ASCENDING = "last_attempt_at"

    @property
    def field(self) -> str:
        """Return the field that the list is sorted by."""
        return self.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        """Return whether the greatest value comes first."""
        return self.startswith("-")


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


NO_FILTERS = Filters()


class Listing(msgspec.Struct, frozen=True):
    """Whose schedules are listed, with which values, which page of them, and in which order."""

    reach: Reach
    filters: Filters
    part: Part
    sort: Sort = Sort.NEWEST

    @property
    def needs_plan_of_its_own(self) -> bool:
        """Return whether a plan has to know the values, of an order too: some owners have few schedules, some most."""
        return self.filters.need_plans_of_their_own or self.sort.field != "created_at"

    @property
    def is_slow_if_long(self) -> bool:
        """Return whether a long list of this kind is read to its end for one page.

        No index has the last attempts. Names are in the order of the texts that they contain.
        """
        return self.sort.field == "last_attempt_at" or (bool(self.filters.q) and self.sort.field == "name")


class ListedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in a list: its id, the version (``xmin``) of its row, and what is shown beside the row."""

    id: UUID
    version: int
    workflow_name: str
    namespace: str | None
    # The value that the list is sorted by; None if the schedule has none.
    place: Any


class _Stage(msgspec.Struct, frozen=True):
    """A part of a sorted list that one index answers."""

    source: str
    # The expression to sort by; None if the rows of the stage have no value, and are sorted by their ids alone.
    place: str | None
    condition: str = "TRUE"


_JOBS = "scheduled_jobs AS j"
_DUE = "due_ticks AS d JOIN scheduled_jobs AS j ON j.id = d.id"
_MARKED = "schedule_marks AS k JOIN scheduled_jobs AS j ON j.id = k.id"
_STAGES: dict[str, tuple[_Stage, ...]] = {
    "created_at": (_Stage(_JOBS, "j.created_at"),),
    # In the order of characters, which Python has too: pages of several owners are merged.
    "name": (_Stage(_JOBS, 'j.name COLLATE "C"'),),
    # What has a tick is in ``due_ticks`` in this order; what has none comes after it.
    "next_run_at": (_Stage(_DUE, "d.next_run_at"), _Stage(_JOBS, None, "j.next_run_at IS NULL")),
    "last_attempt_at": (
        _Stage(_JOBS, "j.last_attempt_at", "j.last_attempt_at IS NOT NULL"),
        _Stage(_JOBS, None, "j.last_attempt_at IS NULL"),
    ),
}
_NEVER_NULL = {"j.created_at", "k.created_at", 'j.name COLLATE "C"', "d.next_run_at"}
_BY_MARK = (_Stage(_MARKED, "k.created_at"),)
_MARKS = {Health.FAILING, Health.NEVER_RAN}
_OVERDUE = {Health.LATE, Health.SILENT}
_RESTING = {Health.PAUSED, Health.DEAD, Health.INVALID, Health.DONE}


class _Query:
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


async def page(connection: AsyncConnection, listing: Listing, totals: KnownTotals) -> Page[ListedRow]:
    """Return a page of a list of schedules."""
    now = clock.now()
    listing = _restricted(listing)
    filters, sort = listing.filters, listing.sort
    sources = listing.reach.of_workflow(filters.workflow_id).sources
    if listing.needs_plan_of_its_own:
        # Until the transaction ends, which such lists are read in.
        await connection.execute(text("SET LOCAL plan_cache_mode = force_custom_plan"))
    if filters.health in _OVERDUE:
        return await _overdue_page(connection, listing, sources, now)

    async def read(source: Source, part: Part) -> Page[ListedRow]:
        return await _page_of(connection, replace(listing, part=part), source, totals, now)

    return await read_merged(sources, listing.part, read, ascending=not sort.is_descending, position=_position(sort))


def _restricted(listing: Listing) -> Listing:
    """Return a list with what its reach asks of schedules as filters; with no owner if both contradict each other."""
    reach, filters = listing.reach, listing.filters
    labels = tuple(sorted({*filters.labels, *reach.labels}))
    namespace = filters.namespace if filters.namespace is not None else (reach.namespace or None)
    if len(dict(labels)) < len(labels) or (reach.namespace and namespace != reach.namespace):
        reach = replace(reach, owners=())
    return replace(listing, reach=reach, filters=replace(filters, labels=labels, namespace=namespace))


def _position(sort: Sort) -> Callable[[ListedRow], tuple[Any, ...]]:
    """Return what a row's place in a list is compared by; rows without a value are last in both directions."""

    def position(row: ListedRow) -> tuple[Any, ...]:
        has_value = row.place is not None
        return (has_value is sort.is_descending, row.place if has_value else 0, row.id.int)

    return position


async def _page_of(
    connection: AsyncConnection, listing: Listing, source: Source, totals: KnownTotals, now: datetime
) -> Page[ListedRow]:
    """Return a page of what one source has."""
    part, total, is_estimate = listing.part, None, False
    if part.counts:
        total, is_estimate = await _total(connection, listing.filters, source, totals, now)
    is_short = total is not None and not is_estimate and (listing.sort.field != "created_at" or listing.filters.q)
    if is_short and await _is_sparse(connection, total or 0, part.limit, totals):
        items = await _sorted_rows(connection, listing, source, now)
    elif listing.filters.q and not part.offset:
        items = await _rows_with_text(connection, listing, source, now)
    else:
        items = await _ordered_rows(connection, listing, source, now)
    total = len(items) if total is None else total
    more = cursor_of([items[-1].place, items[-1].id]) if len(items) == part.limit else None
    return Page(items, total, is_estimate, more, ("place", "id"))


async def _rows_with_text(
    connection: AsyncConnection, listing: Listing, source: Source, now: datetime
) -> list[ListedRow]:
    """Return the rows of a page of a list by a text that many schedules have.

    They are near the beginning of most orders. They are not if the order follows the text, as names do: in the order of
    names, the first ``report-1`` may come after half of all schedules.
    """
    items = await _ordered_rows(connection, listing, source, now, most=MOST_WALKED)
    if len(items) < listing.part.limit:
        # All that matches is sorted: the bitmap of the rows has to fit into memory.
        await connection.execute(text(f"SET LOCAL work_mem = '{COLLECTING_MEGABYTES}MB'"))
        items = await _sorted_rows(connection, listing, source, now)
    return items


_TABLE_ROWS = "SELECT reltuples::bigint AS number FROM pg_class WHERE oid = 'scheduled_jobs'::regclass"


async def _is_sparse(connection: AsyncConnection, matching: int, limit: int, totals: KnownTotals) -> bool:
    """Return whether reading all schedules that match costs less than reading in order until a page is full.

    In order, ``limit`` of them are found among ``limit`` / ``matching`` of the table.
    """
    rows = await _table_rows(connection, totals)
    return matching * matching < limit * max(rows, matching)


async def _table_rows(connection: AsyncConnection, totals: KnownTotals) -> int:
    """Return about how many schedules there are."""
    key = (("table", "scheduled_jobs"),)
    rows = totals.fresh(key, clock.monotonic())
    if rows is None:
        rows = int((await fetch(connection, _TABLE_ROWS))[0]["number"])
        totals.keep(key, rows, clock.monotonic() + FRESH_SECONDS)
    return rows


async def _ordered_rows(
    connection: AsyncConnection, listing: Listing, source: Source, now: datetime, most: int | None = None
) -> list[ListedRow]:
    """Return the rows of a page in the order of an index, from one stage of the list after another.

    With ``most``, they are looked for among the next ``most`` schedules of the first stage only.
    """
    part, cursor = listing.part, _read_cursor(listing.part.cursor, listing.sort)
    items: list[ListedRow] = []
    for stage in _stages(listing):
        if len(items) == part.limit:
            break
        if cursor is not None and cursor[0] is None and stage.place is not None:
            # The cursor is among the rows without a value, which come later.
            continue
        after = cursor if cursor is not None and (cursor[0] is None) is (stage.place is None) else None
        at = _At(stage, after, part.limit - len(items))
        if most is None:
            items += await _rows(connection, listing, source, at, now)
            continue
        last = await _place_beyond(connection, listing.sort, source, at, most)
        return await _rows(connection, listing, source, replace(at, last=last), now)
    return items


async def _place_beyond(
    connection: AsyncConnection, sort: Sort, source: Source, at: "_At", number: int
) -> tuple[Any, UUID] | None:
    """Return the place of the schedule so many further on in a stage; None if the stage ends before it."""
    query = _Query()
    table = "due_ticks AS d" if at.stage.source is _DUE else at.stage.source
    if at.stage.source is not _DUE:
        _add_source(query, source, "k" if at.stage.source is _MARKED else "j")
        query.add(at.stage.condition)
    _add_bounds(query, sort, at)
    rows = await fetch(
        connection,
        f"SELECT {at.stage.place or 'NULL::timestamptz'}, {at.key} FROM {table} WHERE {query.text} "  # noqa: S608
        f"ORDER BY {_order(sort, at)} LIMIT 1 OFFSET {number:d}",
        *query.values,
    )
    return tuple(rows[0]) if rows else None


def _stages(listing: Listing) -> tuple[_Stage, ...]:
    filters, field = listing.filters, listing.sort.field
    stages = _STAGES[field]
    if field == "created_at" and filters.health in _MARKS:
        return _BY_MARK
    if listing.part.offset and len(stages) > 1:
        # An offset counts over all stages.
        return (_Stage(_JOBS, f"j.{field}"),)
    if field == "next_run_at" and (filters.health in _RESTING or filters.status not in {None, Status.ACTIVE}):
        return stages[1:]
    return stages


def _read_cursor(cursor: str | None, sort: Sort) -> tuple[Any, UUID] | None:
    if cursor is None:
        return None
    return place_of(cursor, str if sort.field == "name" else datetime)


class _At(msgspec.Struct, frozen=True):
    """Which rows of a stage to read: how many, after one place and up to another."""

    stage: _Stage
    after: tuple[Any, UUID] | None
    limit: int
    last: tuple[Any, UUID] | None = None

    @property
    def key(self) -> str:
        """Return the id by which rows of equal places are sorted."""
        source = self.stage.source
        return f"{source[source.index(' AS ') + 4]}.id"


def _add_bounds(query: _Query, sort: Sort, at: _At) -> None:
    beyond, before = ("<", ">=") if sort.is_descending else (">", "<=")
    for sign, bound in ((beyond, at.after), (before, at.last)):
        if bound is not None and at.stage.place is None:
            query.add(f"{at.key} {sign} {{}}", bound[1])
        elif bound is not None:
            query.add(f"({at.stage.place}, {at.key}) {sign} ({{}}, {{}})", *bound)


def _order(sort: Sort, at: _At) -> str:
    """Return the order of a stage, in the words of its index."""
    place, order = at.stage.place, "DESC" if sort.is_descending else "ASC"
    if place is None:
        return f"{at.key} {order}"
    return f"{place} {order}{'' if place in _NEVER_NULL else ' NULLS LAST'}, {at.key} {order}"


async def _sorted_rows(connection: AsyncConnection, listing: Listing, source: Source, now: datetime) -> list[ListedRow]:
    """Return the rows of a page of a list that is known to be short: all that match are read, then sorted.

    In the order of an index Postgres would read, and drop, all that does not match until the page is full.
    """
    field, part = listing.sort.field, listing.part
    place = 'j.name COLLATE "C"' if field == "name" else f"j.{field}"
    stage = _Stage(_MARKED if listing.filters.health in _MARKS else _JOBS, place)
    query = _conditions(listing.filters, source, stage, now)
    matching = f"SELECT j.id, j.xmin AS version, j.workflow_id, {place} AS place FROM {stage.source} WHERE {query.text}"  # noqa: S608
    sign, order = ("<", "DESC") if listing.sort.is_descending else (">", "ASC")
    cursor, after = _read_cursor(part.cursor, listing.sort), "TRUE"
    if cursor is not None and cursor[0] is None:
        after = f"few.place IS NULL AND few.id {sign} {query.bind(cursor[1])}"
    elif cursor is not None:
        after = f"((few.place, few.id) {sign} ({query.bind(cursor[0])}, {query.bind(cursor[1])}) OR few.place IS NULL)"
    rows = await fetch(
        connection,
        f"WITH few AS MATERIALIZED ({matching}) SELECT p.*, w.name AS workflow_name, m.namespace FROM (SELECT * "  # noqa: S608
        f"FROM few WHERE {after} ORDER BY few.place {order} NULLS LAST, few.id {order} LIMIT {part.limit:d} "
        f"OFFSET {part.offset:d}) AS p LEFT JOIN workflows AS w ON w.id = p.workflow_id "
        "LEFT JOIN managed_schedules AS m ON m.scheduled_job_id = p.id",
        *query.values,
    )
    return sorted(map(_listed, rows), key=_position(listing.sort), reverse=listing.sort.is_descending)


async def _rows(
    connection: AsyncConnection, listing: Listing, source: Source, at: _At, now: datetime
) -> list[ListedRow]:
    stage = at.stage
    query = _conditions(listing.filters, source, stage, now)
    _add_bounds(query, listing.sort, at)
    rows = await fetch(
        connection,
        "SELECT p.id, p.version, p.place, w.name AS workflow_name, m.namespace FROM (SELECT j.id, j.xmin AS version, "  # noqa: S608
        f"j.workflow_id, {stage.place or 'NULL::timestamptz'} AS place FROM {stage.source} WHERE {query.text} "
        f"ORDER BY {_order(listing.sort, at)} LIMIT {at.limit:d} OFFSET {listing.part.offset:d}) AS p "
        "LEFT JOIN workflows AS w ON w.id = p.workflow_id "
        "LEFT JOIN managed_schedules AS m ON m.scheduled_job_id = p.id",
        *query.values,
    )
    return sorted(map(_listed, rows), key=_position(listing.sort), reverse=listing.sort.is_descending)


def _listed(row: Any) -> ListedRow:
    return ListedRow(
        id=row["id"],
        version=row["version"],
        workflow_name=row["workflow_name"] or "",
        namespace=row["namespace"],
        place=row["place"],
    )


def _conditions(filters: Filters, source: Source, stage: _Stage, now: datetime) -> _Query:
    """Return the conditions of a list for one of its sources."""
    query = _Query()
    if stage.condition != "TRUE":
        query.add(stage.condition)
    _add_source(query, source, "k" if stage.source is _MARKED else "j")
    for name in _PLAIN:
        value = getattr(filters, name)
        if value is not None:
            query.add(f"j.{name} = {{}}", value)
    for name, value, implied in _IMPLIED:
        if getattr(filters, name) not in {None, value}:
            query.add(implied)
    if filters.owner_id is not None and source.owners is None and stage.place == "j.created_at":
        # Statistics may know one owner only. Then plans would search the schedules of all others for those of this one.
        for sign, end in ((">=", ("-infinity", UUID(int=0))), ("<=", ("infinity", UUID(int=2**128 - 1)))):
            query.add(f"(j.owner_id, j.created_at, j.id) {sign} ({{}}, '{end[0]}', '{end[1]}')", filters.owner_id)
    _add_searches(query, filters)
    _add_health(query, filters.health, stage, now)
    return query


def _add_source(query: _Query, source: Source, table: str) -> None:
    if source.owner is not None:
        query.add(f"{table}.user_profile_id = {{}}", source.owner)
    elif source.owners is not None:
        query.add(f"{table}.user_profile_id = ANY({{}}::int[])", list(source.owners))
    if source.workflow_id is not None:
        query.add(f"{table}.workflow_id = {{}}", source.workflow_id)


def _add_searches(query: _Query, filters: Filters) -> None:
    if filters.q:
        found = "(j.name ILIKE {0} OR j.key ILIKE {0}"
        job_id = _as_id(filters.q)
        if job_id is None:
            query.add(f"{found})", containing(filters.q))
        else:
            query.add(f"{found} OR j.id = {{1}})", containing(filters.q), job_id)
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
    if filters.kind is not None:
        query.add(_KINDS[filters.kind])
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


def _add_health(query: _Query, health: Health | None, stage: _Stage, now: datetime) -> None:
    """Add the conditions for what ``app.domain.health`` says of a schedule; overdue ones are read in another way."""
    if health is None:
        return
    if health in _RESTING:
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
        case _ if stage.source is _MARKED:
            query.add(f"k.mark = {{}} AND j.status = 'active' AND {_IN_TIME}", str(health), now - LATE_AFTER)
        case _:
            query.add(
                "EXISTS (SELECT FROM schedule_marks AS k WHERE k.id = j.id AND k.mark = {}) AND j.status = 'active' "
                f"AND {_IN_TIME}",
                str(health),
                now - LATE_AFTER,
            )


async def _total(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime
) -> tuple[int, bool]:
    """Return how many schedules match, and whether that is an estimate."""
    key = (("filters", filters), ("source", source))
    known = totals.fresh(key, clock.monotonic())
    if known is not None:
        return known, True
    stage, query = _matching(filters, source, now)
    matching = f"SELECT FROM {stage.source} WHERE {query.text}"
    estimate = await _surely_long(connection, filters, source, totals, now)
    if estimate is None:
        (row,) = await fetch(
            connection,
            f"SELECT count(*) AS number FROM ({matching} LIMIT {COUNTED + 1:d}) AS few",  # noqa: S608
            *query.values,
        )
        number: int = row["number"]
        if number <= COUNTED:
            return number, False
        estimate = max(number, await estimated_rows(connection, matching, query.values))
    totals.keep(key, estimate, clock.monotonic() + FRESH_SECONDS)
    return estimate, True


async def _surely_long(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime
) -> int | None:
    """Return the planner's estimate of a list if it need not be counted: it is long, and the newest schedules agree.

    To count ``COUNTED`` schedules that contain a text or have a label takes much longer than to look at the newest.
    """
    stage, shortest = _STAGES["created_at"][0], SURELY_LONG * COUNTED
    if not filters.need_plans_of_their_own or await _table_rows(connection, totals) < shortest:
        return None
    query, everything = _conditions(filters, source, stage, now), _Query()
    _add_source(everything, source, "j")
    matching, all_rows = (f"SELECT FROM {stage.source} WHERE {one.text}" for one in (query, everything))
    estimate = await estimated_rows(connection, matching, query.values)
    if estimate < shortest:
        return None
    expected = SAMPLED * estimate / max(estimate, await estimated_rows(connection, all_rows, everything.values))
    number = await _sampled(connection, filters, source, stage, now)
    return estimate if number >= AGREEING * expected else None


async def _sampled(connection: AsyncConnection, filters: Filters, source: Source, stage: _Stage, now: datetime) -> int:
    """Return how many of the newest ``SAMPLED`` schedules match.

    The conditions are those of the count, so that no index is asked for everything that matches.
    """
    at = _At(stage, None, SAMPLED)
    last = await _place_beyond(connection, Sort.NEWEST, source, at, SAMPLED)
    query = _conditions(filters, source, stage, now)
    matches = query.text
    query.conditions.clear()
    _add_source(query, source, "j")
    _add_bounds(query, Sort.NEWEST, replace(at, last=last))
    (row,) = await fetch(
        connection,
        f"SELECT count(*) FILTER (WHERE {matches}) AS number FROM {stage.source} WHERE {query.text}",  # noqa: S608
        *query.values,
    )
    return int(row["number"])


async def _overdue_page(
    connection: AsyncConnection, listing: Listing, sources: Sequence[Source], now: datetime
) -> Page[ListedRow]:
    """Return a page of the late or the silent schedules: how long one may be late depends on its cadence."""
    rows: list[ListedRow] = []
    for source in sources:
        rows += await _overdue(connection, listing, source, now)
    position = _position(listing.sort)
    cursor = _read_cursor(listing.part.cursor, listing.sort)
    ordered = sorted(rows, key=position, reverse=listing.sort.is_descending)
    if cursor is not None:
        here = position(ListedRow(id=cursor[1], version=0, workflow_name="", namespace=None, place=cursor[0]))
        ordered = [
            row for row in ordered if position(row) != here and (position(row) < here) is listing.sort.is_descending
        ]
    page = Page(ordered, len(rows), len(rows) >= MOST_OVERDUE, None, ("place", "id"))
    return merged([page], listing.part, ascending=not listing.sort.is_descending, position=position)


async def _overdue(connection: AsyncConnection, listing: Listing, source: Source, now: datetime) -> list[ListedRow]:
    filters = replace(listing.filters, health=None)
    query = _conditions(filters, source, _STAGES["next_run_at"][0], now)
    query.add("d.next_run_at < {}", now - LATE_AFTER)
    columns = COLUMNS.replace("j.trigger_payload", "'{}'::jsonb AS trigger_payload")
    rows = await fetch(
        connection,
        f"SELECT {columns}, j.xmin AS version, w.name AS workflow_name, m.namespace FROM {_DUE} "  # noqa: S608
        "LEFT JOIN workflows AS w ON w.id = j.workflow_id "
        f"LEFT JOIN managed_schedules AS m ON m.scheduled_job_id = j.id WHERE {query.text} "
        f"ORDER BY d.next_run_at LIMIT {MOST_OVERDUE:d}",
        *query.values,
    )
    jobs = zip(await with_calendars(connection, [from_record(row) for row in rows]), rows, strict=True)
    return [
        ListedRow(
            id=job.id,
            version=row["version"],
            workflow_name=row["workflow_name"] or "",
            namespace=row["namespace"],
            place=getattr(job, listing.sort.field),
        )
        for job, row in jobs
        if health_of(job, now) is listing.filters.health
    ]


# The schedules that an operation is about.


class StateCount(msgspec.Struct, frozen=True):
    """How many schedules are in a state that decides about an action."""

    state: RowState
    count: int


async def count_states(
    connection: AsyncConnection, reach: Reach, filters: Filters, action: BulkAction, wanted: Mapping[str, Any]
) -> list[StateCount]:
    """Return how many of the schedules that match are in which state.

    ``wanted`` are the values by which a schedule counts as unchanged: ``labels_added`` and ``labels_removed`` of a
    change of labels, or columns.
    """
    now = clock.now()
    counts: list[StateCount] = []
    filters = await _with_plain_filters(connection, reach, filters, now)
    for source in reach.of_workflow(filters.workflow_id).sources:
        stage, query = _matching(filters, source, now)
        same = _same_values(query, action, wanted)
        active = "EXISTS (SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id)"
        rows = await fetch(
            connection,
            f"SELECT j.status, j.status_reason, j.if_running, {active if action is BulkAction.RUN else 'false'}, "  # noqa: S608
            f"{same}, count(*) FROM {stage.source} WHERE {query.text} GROUP BY 1, 2, 3, 4, 5",
            *query.values,
        )
        counts += [StateCount(_state(row), row[5]) for row in rows]
    return counts


class Selection(msgspec.Struct, frozen=True):
    """Schedules ``j`` as SQL: the tables, the condition, and the values of its parameters."""

    source: str
    condition: str
    values: tuple[Any, ...]


async def selections(connection: AsyncConnection, reach: Reach, filters: Filters) -> list[Selection]:
    """Return what matches, in parts that have no schedule in common, for queries of the caller's own."""
    now = clock.now()
    listing = _restricted(Listing(reach, filters, Part(1)))
    filters = await _with_plain_filters(connection, listing.reach, listing.filters, now)
    parts = (_matching(filters, source, now) for source in listing.reach.of_workflow(filters.workflow_id).sources)
    return [Selection(stage.source, query.text, tuple(query.values)) for stage, query in parts]


def _state(row: Any) -> RowState:
    return RowState(status=row[0], status_reason=row[1], if_running=row[2], has_active_run=row[3], is_same=row[4])


async def select_for_operation(connection: AsyncConnection, operation_id: UUID, reach: Reach, filters: Filters) -> int:
    """Note all schedules that match as those of an operation. Return how many."""
    now = clock.now()
    total = 0
    filters = await _with_plain_filters(connection, reach, filters, now)
    for source in reach.of_workflow(filters.workflow_id).sources:
        stage, query = _matching(filters, source, now)
        rows = await fetch(
            connection,
            "WITH added AS (INSERT INTO operation_items (operation_id, scheduled_job_id) "  # noqa: S608
            f"SELECT {query.bind(operation_id)}::uuid, j.id FROM {stage.source} WHERE {query.text} RETURNING 1) "
            "SELECT count(*) FROM added",
            *query.values,
        )
        total += rows[0][0]
    return total


def _matching(filters: Filters, source: Source, now: datetime) -> tuple[_Stage, _Query]:
    stage = _BY_MARK[0] if filters.health in _MARKS else _STAGES["created_at"][0]
    return stage, _conditions(filters, source, stage, now)


async def _with_plain_filters(connection: AsyncConnection, reach: Reach, filters: Filters, now: datetime) -> Filters:
    """Return filters that SQL can answer: late and silent schedules are named by their ids."""
    if filters.need_plans_of_their_own:
        await connection.execute(text("SET LOCAL plan_cache_mode = force_custom_plan"))
    if filters.health not in _OVERDUE:
        return filters
    rows: list[ListedRow] = []
    for source in reach.of_workflow(filters.workflow_id).sources:
        rows += await _overdue(connection, Listing(reach, filters, Part(1)), source, now)
    return replace(filters, health=None, ids=tuple(row.id for row in rows))


def _same_values(query: _Query, action: BulkAction, wanted: Mapping[str, Any]) -> str:
    """Return the expression that a schedule has these values already."""
    if action is BulkAction.LABEL:
        added = query.bind(msgspec.json.encode(wanted["labels_added"]).decode())
        removed = query.bind(list(wanted["labels_removed"]))
        return f"(j.labels @> {added}::text::jsonb AND NOT j.labels ?| {removed}::text[])"
    if not wanted:
        return "false"
    stored = stored_values(wanted)
    return "(" + " AND ".join(_same_value(query, name, value) for name, value in stored.items()) + ")"


def _same_value(query: _Query, name: str, value: Any) -> str:
    kind = type_of(ScheduledJobRow.__table__.c[name])
    if kind == "JSONB":
        column = f"(j.{name} - '{CALENDAR_MARK}')" if name == "not_on" else f"j.{name}"
        return f"{column} = {query.bind(msgspec.json.encode(value).decode())}::text::jsonb"
    return f"j.{name} IS NOT DISTINCT FROM {query.bind(value)}::{kind}"
