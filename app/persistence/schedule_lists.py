"""Lists of schedules: filtered, sorted, and read page by page with what they show beside their rows.

The queries go to the driver directly, and are planned with the values of their parameters: a filter that few schedules
match needs another plan than one that most do.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.access import Reach, Source
from app.domain.health import LATE_AFTER, health_of
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
from app.persistence.schedule_filters import (
    BY_MARK,
    BY_NAME_AND_TEXT,
    DUE,
    JOBS,
    MARKS,
    NEVER_NULL,
    NO_FILTERS,
    OVERDUE,
    SEARCH_MEGABYTES,
    STAGES,
    Filters,
    Query,
    Stage,
    add_source,
    conditions,
    narrowest,
    with_owner_id,
    with_rarity,
)
from app.persistence.schedules import COLUMNS, from_record
from app.persistence.sql_batches import fetch

# Overdue schedules are few, unless nothing fires them. More are not looked at for a list by health.
MOST_OVERDUE = 5_000
# So many schedules are looked at in the order of a list. If they do not fill the page, all that match are collected and
# sorted, unless the planner expects more than can be collected in the same time.
MOST_WALKED = 5_000
MOST_COLLECTED = 100_000
# A list is not counted if the planner expects so many times ``COUNTED``, and of the newest so many schedules at least
# this part matches of what that lets expect.
SURELY_LONG = 2
SAMPLED = 2_000
AGREEING = 0.5


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
    def reads_all(self) -> bool:
        """Return whether all schedules are read, so that several processes help; few rows are found by one."""
        return self.sort.field == "last_attempt_at"

    @property
    def is_slow_if_long(self) -> bool:
        """Return whether a long list of this kind is read to its end for one page.

        No index has the last attempts. Names are in the order of the texts that they contain.
        """
        return self.reads_all or (bool(self.filters.q) and self.sort.field == "name")

    @property
    def is_bounded(self) -> bool:
        """Return whether what matches may be far from the beginning of the order, so that few schedules are looked at.

        What an index has in the order of the list, and what no index has in that order, is never far.
        """
        filters, field = self.filters, self.sort.field
        if self.part.offset or self.reads_all:
            return False
        if field == "created_at":
            return filters.are_searched and _stages(self) is not BY_MARK
        return replace(filters, workflow_id=None, team_id=None) != NO_FILTERS


class ListedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in a list: its id, the version (``xmin``) of its row, and what is shown beside the row."""

    id: UUID
    version: int
    workflow_name: str
    namespace: str | None
    # The value that the list is sorted by; None if the schedule has none.
    place: Any


_PLANS_OF_THEIR_OWN = text(
    "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('work_mem', :memory, true), "
    "set_config('max_parallel_workers_per_gather', :processes, true)"
)


async def page(connection: AsyncConnection, listing: Listing, totals: KnownTotals) -> Page[ListedRow]:
    """Return a page of a list of schedules."""
    now = clock.now()
    listing = restricted(replace(listing, filters=await with_owner_id(connection, listing.filters)))
    filters, sort = listing.filters, listing.sort
    sources = listing.reach.of_workflow(filters.workflow_id).sources
    if listing.needs_plan_of_its_own:
        # Until the transaction ends, which such lists are read in.
        processes = "2" if listing.reads_all else "0"
        await connection.execute(_PLANS_OF_THEIR_OWN, {"processes": processes, "memory": f"{SEARCH_MEGABYTES}MB"})
    listing = replace(listing, filters=await with_rarity(connection, filters))
    if filters.health in OVERDUE:
        return await _overdue_page(connection, listing, sources, now)

    async def read(source: Source, part: Part) -> Page[ListedRow]:
        return await _page_of(connection, replace(listing, part=part), source, totals, now)

    return await read_merged(sources, listing.part, read, ascending=not sort.is_descending, position=_position(sort))


def restricted(listing: Listing) -> Listing:
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
    # One row more than is asked for tells whether there is a next page.
    listing = replace(listing, part=replace(listing.part, limit=listing.part.limit + 1))
    if not listing.part.counts:
        items = await _items(connection, listing, source, totals, now, None)
        return _page(listing, items, len(items), is_estimate=False)
    total = await _expected_total(connection, listing.filters, source, totals, now)
    if total is None and (listing.filters.are_searched or listing.filters.health in MARKS):
        number, items = await _counted_rows(connection, listing, source, now)
        if number <= COUNTED:
            return _page(listing, items, number, is_estimate=False)
        total = await _estimated_total(connection, listing.filters, source, totals, now, number)
    is_estimate = total is not None
    if total is None:
        total, is_estimate = await _total(connection, listing.filters, source, totals, now)
    items = await _items(connection, listing, source, totals, now, None if is_estimate else total)
    return _page(listing, items, total, is_estimate=is_estimate)


def _page(listing: Listing, rows: Sequence[ListedRow], total: int, *, is_estimate: bool) -> Page[ListedRow]:
    """Return a page without the last row, which is one more than is asked for, if the list goes on that far."""
    goes_on, items = len(rows) == listing.part.limit, rows[: listing.part.limit - 1]
    more = cursor_of([items[-1].place, items[-1].id]) if goes_on else None
    return Page(items, total, is_estimate, more, ("place", "id"))


async def _items(
    connection: AsyncConnection,
    listing: Listing,
    source: Source,
    totals: KnownTotals,
    now: datetime,
    exact_total: int | None,
) -> list[ListedRow]:
    """Return the rows of a page: in the order of an index, or from all that match, whichever reads less."""
    filters, part = listing.filters, listing.part
    is_short = exact_total is not None and listing.sort.field != "created_at"
    if is_short and await _is_sparse(connection, exact_total or 0, part.limit, totals):
        return await _sorted_rows(connection, listing, source, now)
    if listing.is_bounded:
        items = await _ordered_rows(connection, listing, source, now, most=MOST_WALKED)
        if len(items) == part.limit:
            return items
    if filters.q and listing.sort.field == "name" and not filters.are_in_texts and not part.offset:
        items = await _rows_from_first_text(connection, listing, source, now)
        if len(items) == part.limit:
            return items
    if filters.q or (listing.is_bounded and await _are_collectable(connection, filters, source, totals, now)):
        return await _sorted_rows(connection, listing, source, now)
    return await _ordered_rows(connection, listing, source, now)


async def _rows_from_first_text(
    connection: AsyncConnection, listing: Listing, source: Source, now: datetime
) -> list[ListedRow]:
    """Return the rows among the next schedules from the first one on, in the order of names, that has the text.

    What has the text is found without the other filters, from narrow rows, and is often close together.
    """
    texts = replace(listing, filters=listing.filters.in_texts, part=replace(listing.part, limit=1))
    first = await _sorted_rows(connection, texts, source, now)
    if not first:
        return []
    step = 1 if listing.sort.is_descending else -1
    before = UUID(int=min(max(first[0].id.int + step, 0), 2**128 - 1))
    part = replace(listing.part, cursor=cursor_of([first[0].place, before]))
    return await _ordered_rows(connection, replace(listing, part=part), source, now, most=MOST_WALKED)


async def _are_collectable(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime
) -> bool:
    number, _ = await _total(connection, filters, source, totals, now)
    return number <= MOST_COLLECTED


_TABLE_ROWS = "SELECT reltuples::bigint AS number FROM pg_class WHERE oid = 'scheduled_jobs'::regclass"


async def _is_sparse(connection: AsyncConnection, matching: int, limit: int, totals: KnownTotals) -> bool:
    """Return whether reading all schedules that match costs less than reading in order until a page is full.

    In order, ``limit`` of them are found among ``limit`` / ``matching`` of the table. That should be well within the
    bound of what is looked at.
    """
    in_order = limit * max(await _table_rows(connection, totals), matching) / max(matching, 1)
    return matching < in_order or in_order > MOST_WALKED / 2


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

    With ``most``, they are looked for among the next ``most`` schedules of the first stage only, unless that has no
    order but that of the ids.
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
        if most is None or stage.place is None:
            items += await _rows(connection, listing, source, at, now)
        elif stage.source is DUE:
            return await _rows(connection, listing, source, replace(at, most=most), now)
        else:
            last = await _place_beyond(connection, listing.sort, source, at, most)
            return await _rows(connection, listing, source, replace(at, last=last), now)
    return items


async def _place_beyond(
    connection: AsyncConnection, sort: Sort, source: Source, at: "_At", number: int
) -> tuple[Any, UUID] | None:
    """Return the place of the schedule so many further on in a stage; None if the stage ends before it."""
    query = Query()
    add_source(query, source, at.stage.owned)
    query.add(at.stage.condition)
    _add_bounds(query, sort, at)
    rows = await fetch(
        connection,
        f"SELECT {at.stage.place or 'NULL::timestamptz'}, {at.key} FROM {at.stage.table} WHERE {query.text} "  # noqa: S608
        f"ORDER BY {_order(sort, at)} LIMIT 1 OFFSET {number:d}",
        *query.values,
    )
    return tuple(rows[0]) if rows else None


def _stages(listing: Listing) -> tuple[Stage, ...]:
    filters, field = listing.filters, listing.sort.field
    stages = STAGES[field]
    if field == "created_at" and filters.health in MARKS and not filters.q:
        return BY_MARK
    if field == "name" and (filters.q or filters.kind):
        return BY_NAME_AND_TEXT
    if listing.part.offset and len(stages) > 1:
        # An offset counts over all stages.
        return (Stage(JOBS, f"j.{field}"),)
    return stages[1:] if field == "next_run_at" and filters.are_resting else stages


def _read_cursor(cursor: str | None, sort: Sort) -> tuple[Any, UUID] | None:
    if cursor is None:
        return None
    return place_of(cursor, str if sort.field == "name" else datetime)


class _At(msgspec.Struct, frozen=True):
    """Which rows of a stage to read: how many, after one place and up to another."""

    stage: Stage
    after: tuple[Any, UUID] | None
    limit: int
    last: tuple[Any, UUID] | None = None
    # Of the ticks that come next, only these many are looked at.
    most: int | None = None

    @property
    def key(self) -> str:
        """Return the id by which rows of equal places are sorted."""
        return f"{self.stage.table[-1]}.id"


def _add_bounds(query: Query, sort: Sort, at: _At) -> None:
    beyond, before = ("<", ">=") if sort.is_descending else (">", "<=")
    for sign, bound in ((beyond, at.after), (before, at.last)):
        if bound is not None and at.stage.place is None:
            query.add(f"{at.key} {sign} {{}}", bound[1])
        elif bound is not None:
            query.add(f"({at.stage.place}, {at.key}) {sign} ({{}}, {{}})", *bound)


def _bounded_source(query: Query, sort: Sort, at: _At) -> str:
    """Return what to read from, and add the bounds to the query or to the ticks that are looked at."""
    others = list(query.conditions)
    _add_bounds(query, sort, at)
    if at.most is None:
        return at.stage.source
    bounds = " AND ".join(query.conditions[len(others) :]) or "TRUE"
    query.conditions = others
    ticks = (
        f"SELECT d.id, d.next_run_at FROM due_ticks AS d WHERE {bounds} ORDER BY {_order(sort, at)} LIMIT {at.most:d}"  # noqa: S608
    )
    return at.stage.source.replace("due_ticks AS d", f"({ticks}) AS d", 1)


def _order(sort: Sort, at: _At) -> str:
    """Return the order of a stage, in the words of its index."""
    place, order = at.stage.place, "DESC" if sort.is_descending else "ASC"
    if place is None:
        return f"{at.key} {order}"
    return f"{place} {order}{'' if place in NEVER_NULL else ' NULLS LAST'}, {at.key} {order}"


async def _sorted_rows(connection: AsyncConnection, listing: Listing, source: Source, now: datetime) -> list[ListedRow]:
    """Return the rows of a page of a list that is known to be short: all that match are read, then sorted.

    In the order of an index Postgres would read, and drop, all that does not match until the page is full.
    """
    query, matching, page = _of_all_matching(listing, source, now)
    # The offset keeps Postgres from reading in the order of an index.
    few = f"({matching} OFFSET 0) AS few"
    rows = await fetch(connection, f"SELECT {_SHOWN} FROM ({page.format(few)}) AS p {_BESIDE}", *query.values)  # noqa: S608
    return sorted(map(_listed, rows), key=_position(listing.sort), reverse=listing.sort.is_descending)


async def _counted_rows(
    connection: AsyncConnection, listing: Listing, source: Source, now: datetime
) -> tuple[int, list[ListedRow]]:
    """Return how many schedules match, and the rows of a page; if there are more than ``COUNTED``, of some of them."""
    query, matching, page = _of_all_matching(listing, source, now)
    rows = await fetch(
        connection,
        f"WITH few AS MATERIALIZED ({matching} LIMIT {COUNTED + 1:d}) SELECT c.number, q.* "  # noqa: S608
        f"FROM (SELECT count(*) AS number FROM few) AS c LEFT JOIN (SELECT {_SHOWN} FROM ({page.format('few')}) AS p "
        f"{_BESIDE}) AS q ON TRUE",
        *query.values,
    )
    items = [_listed(row) for row in rows if row["id"] is not None]
    return rows[0]["number"], sorted(items, key=_position(listing.sort), reverse=listing.sort.is_descending)


_SHOWN = "p.id, j.xmin AS version, p.place, w.name AS workflow_name, m.namespace"
_BESIDE = (
    "JOIN scheduled_jobs AS j ON j.id = p.id LEFT JOIN workflows AS w ON w.id = j.workflow_id "
    "LEFT JOIN managed_schedules AS m ON m.scheduled_job_id = p.id"
)


def _of_all_matching(listing: Listing, source: Source, now: datetime) -> tuple[Query, str, str]:
    """Return all that matches, and a page of it, for which ``{}`` is the table of what matches."""
    part = listing.part
    stage, query = narrowest(listing.filters, source, now, listing.sort.field)
    matching = f"SELECT {stage.table[-1]}.id, {stage.place} AS place FROM {stage.source} WHERE {query.text}"  # noqa: S608
    sign, order = ("<", "DESC") if listing.sort.is_descending else (">", "ASC")
    cursor, after = _read_cursor(part.cursor, listing.sort), "TRUE"
    if cursor is not None and cursor[0] is None:
        after = f"few.place IS NULL AND few.id {sign} {query.bind(cursor[1])}"
    elif cursor is not None:
        after = f"((few.place, few.id) {sign} ({query.bind(cursor[0])}, {query.bind(cursor[1])}) OR few.place IS NULL)"
    page = (
        f"SELECT few.id, few.place FROM {{}} WHERE {after} ORDER BY few.place {order} NULLS LAST, few.id {order} "  # noqa: S608
        f"LIMIT {part.limit:d} OFFSET {part.offset:d}"
    )
    return query, matching, page


async def _rows(
    connection: AsyncConnection, listing: Listing, source: Source, at: _At, now: datetime
) -> list[ListedRow]:
    stage = at.stage
    query = conditions(listing.filters, source, stage, now)
    read = _bounded_source(query, listing.sort, at)
    rows = await fetch(
        connection,
        "SELECT p.id, p.version, p.place, w.name AS workflow_name, m.namespace FROM (SELECT j.id, j.xmin AS version, "  # noqa: S608
        f"j.workflow_id, {stage.place or 'NULL::timestamptz'} AS place FROM {read} WHERE {query.text} "
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


async def _total(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime
) -> tuple[int, bool]:
    """Return how many schedules match, and whether that is an estimate."""
    expected = await _expected_total(connection, filters, source, totals, now)
    if expected is not None:
        return expected, True
    stage, query = narrowest(filters, source, now)
    (row,) = await fetch(
        connection,
        f"SELECT count(*) AS number FROM (SELECT FROM {stage.source} WHERE {query.text} "  # noqa: S608
        f"LIMIT {COUNTED + 1:d}) AS few",
        *query.values,
    )
    number: int = row["number"]
    if number <= COUNTED:
        return number, False
    return await _estimated_total(connection, filters, source, totals, now, number), True


async def _expected_total(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime
) -> int | None:
    """Return about how many schedules match if there are many and they need not be counted, else None."""
    key = (("filters", filters), ("source", source))
    known = totals.fresh(key, clock.monotonic())
    if known is None:
        known = await _surely_long(connection, filters, source, totals, now)
        if known is not None:
            totals.keep(key, known, clock.monotonic() + FRESH_SECONDS)
    return known


async def _estimated_total(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime, counted: int
) -> int:
    """Return how many schedules the planner expects to match, at least those that were counted."""
    stage, query = narrowest(filters, source, now)
    sql = f"SELECT FROM {stage.source} WHERE {query.text}"
    estimate = max(counted, await estimated_rows(connection, sql, query.values))
    totals.keep((("filters", filters), ("source", source)), estimate, clock.monotonic() + FRESH_SECONDS)
    return estimate


async def _surely_long(
    connection: AsyncConnection, filters: Filters, source: Source, totals: KnownTotals, now: datetime
) -> int | None:
    """Return the planner's estimate of a list if it need not be counted: it is long, and the newest schedules agree.

    To count ``COUNTED`` schedules that contain a text or have a label takes much longer than to look at the newest.
    """
    stage, shortest = STAGES["created_at"][0], SURELY_LONG * COUNTED
    if not filters.need_plans_of_their_own or await _table_rows(connection, totals) < shortest:
        return None
    query, everything = conditions(filters, source, stage, now), Query()
    add_source(everything, source, "j")
    matching, all_rows = (f"SELECT FROM {stage.source} WHERE {one.text}" for one in (query, everything))
    estimate = await estimated_rows(connection, matching, query.values)
    if estimate < shortest:
        return None
    expected = SAMPLED * estimate / max(estimate, await estimated_rows(connection, all_rows, everything.values))
    number = await _sampled(connection, filters, source, stage, now)
    return estimate if number >= AGREEING * expected else None


async def _sampled(connection: AsyncConnection, filters: Filters, source: Source, stage: Stage, now: datetime) -> int:
    """Return how many of the newest ``SAMPLED`` schedules match.

    The conditions are those of the count, so that no index is asked for everything that matches.
    """
    at = _At(stage, None, SAMPLED)
    last = await _place_beyond(connection, Sort.NEWEST, source, at, SAMPLED)
    query = conditions(filters, source, stage, now)
    matches = query.text
    query.conditions.clear()
    add_source(query, source, "j")
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
        rows += await overdue(connection, listing, source, now)
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


async def overdue(connection: AsyncConnection, listing: Listing, source: Source, now: datetime) -> list[ListedRow]:
    """Return the late or the silent schedules of one source."""
    filters = replace(listing.filters, health=None)
    query = conditions(filters, source, STAGES["next_run_at"][0], now)
    query.add("d.next_run_at < {}", now - LATE_AFTER)
    columns = COLUMNS.replace("j.trigger_payload", "'{}'::jsonb AS trigger_payload")
    rows = await fetch(
        connection,
        f"SELECT {columns}, j.xmin AS version, w.name AS workflow_name, m.namespace FROM {DUE} "  # noqa: S608
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
