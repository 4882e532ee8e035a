/** The list of schedules: search with filters, health, strips, selection. Only visible rows are drawn. */

import { useInfiniteQuery, useQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { X } from "lucide-react";
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { useTranslations } from "use-intl";
import { schedules } from "../api/client";
import { ApiError } from "../api/http";
import type { Page, Schedule, Slots } from "../api/types";
import { hasChanged, movedIds, newerCount, withRows } from "../live/pulse";
import { useInterval, usePulseEffect } from "../live/useLive";
import { usePageKeys } from "../shell/shortcuts";
import { useOverview } from "../shell/Shell";
import { SmallStrip } from "../strip/Strip";
import { Badge, Loading, Name, Problem, Sentence, Time, useAct } from "../ui/controls";
import { BulkBar, OperationsDialog, type Selection } from "./BulkBar";
import { failuresOf, pauseOf } from "./healthDetail";
import { SavedViews } from "./SavedViews";
import { parseSearch, queryOf, searchText, toggled, without, type Parsed } from "./search";
import "./list.css";

const route = getRouteApi("/schedules");
const PAGE_SIZE = 100;
const ROW_HEIGHT = 56;
/** On a narrow screen the strip and the next run stand below the name; `list.css` has the same width. */
const NARROW_ROW_HEIGHT = 88;
const NARROW = "(max-width: 1000px)";
const NARROW_STRIP_WIDTH = 170;
const STRIP_SLOTS = 40;
const MOST_STRIPS = 100;
/** Strips are asked for in blocks of rows, so that scrolling by a row asks for nothing. */
const BLOCK = 20;
const NEWER_LOOKED_AT = 50;
const TYPING_MS = 120;
const SORTS = { "": "newest", name: "byName", next_run_at: "byNext", "-last_attempt_at": "byLast" } as const;

export default function List() {
  const t = useTranslations("list");
  const live = useTranslations("live");
  const bulk = useTranslations("bulk");
  const [operations, setOperations] = useState(false);
  const { q = "", sort = "" } = route.useSearch();
  const navigate = useNavigate();
  const parsed = useMemo(() => parseSearch(q), [q]);
  const query = useSchedules(q, sort);
  const newer = useNewer(q, sort, query.data);
  const rows = useMemo(() => query.data?.pages.flatMap((page) => page.items) ?? [], [query.data]);
  const [selection, setSelection] = useState<Selection>({ ids: new Set() });
  // What was selected belongs to the rows of one search.
  useEffect(() => setSelection({ ids: new Set() }), [q]);
  const isNarrow = useIsNarrow();
  const total = query.data?.pages[0]?.total ?? rows.length;
  const setSearch = (text: string) =>
    void navigate({ to: "/schedules", search: { q: text || undefined, sort: sort || undefined }, replace: true });
  return (
    <div className="page fill list-page">
      <div className="head">
        <div>
          <h1>{t("title")}</h1>
          <p className="soft small" role="status">
            {query.data ? t(query.data.pages[0]?.total_is_estimate ? "about" : "shown", { shown: rows.length, total }) : " "}
          </p>
        </div>
        <div className="actions">
          <button type="button" onClick={() => setOperations(true)}>
            {bulk("operations")}
          </button>
          <Link to="/schedules/new" className="button primary">
            {t("create")}
          </Link>
        </div>
        {operations ? <OperationsDialog onClose={() => setOperations(false)} /> : null}
      </div>
      <SearchField value={q} onChange={setSearch} />
      <div className="row narrowing">
        <Chips parsed={parsed} onChange={(next) => setSearch(searchText(next))} />
        <SavedViews q={q} sort={sort} />
      </div>
      <div className="row">
        <Facets parsed={parsed} onChange={(next) => setSearch(searchText(next))} />
        {newer.count > 0 ? (
          <button type="button" onClick={newer.show}>
            ↑ {live("newer", { count: newer.count })}
          </button>
        ) : null}
        <select
          aria-label={t("sort")}
          value={sort}
          onChange={(event) =>
            void navigate({ to: "/schedules", search: { q: q || undefined, sort: event.target.value || undefined } })
          }
        >
          {Object.entries(SORTS).map(([value, name]) => (
            <option key={value} value={value}>
              {t(name)}
            </option>
          ))}
        </select>
      </div>
      {query.error ? <ListProblem error={query.error} retry={() => void query.refetch()} /> : null}
      {query.isPending && !query.error ? <Loading /> : null}
      {query.data && rows.length === 0 ? <Nothing parsed={parsed} onSearch={setSearch} /> : null}
      {rows.length > 0 ? (
        <Rows
          key={String(isNarrow)}
          rows={rows}
          isNarrow={isNarrow}
          listKey={["schedules", q, sort]}
          selection={selection}
          onSelect={setSelection}
          onEnd={() => query.hasNextPage && !query.isFetchingNextPage && void query.fetchNextPage()}
        />
      ) : null}
      {selection.ids.size > 0 || selection.all ? (
        <BulkBar
          selection={selection}
          total={total}
          filter={queryOf(parsed)}
          onAll={() => setSelection({ ids: new Set(), all: true })}
          onClear={() => setSelection({ ids: new Set() })}
        />
      ) : null}
    </div>
  );
}

function useIsNarrow(): boolean {
  return useSyncExternalStore(
    (changed) => {
      const media = matchMedia(NARROW);
      media.addEventListener("change", changed);
      return () => media.removeEventListener("change", changed);
    },
    () => matchMedia(NARROW).matches,
  );
}

function useSchedules(q: string, sort: string) {
  return useInfiniteQuery({
    queryKey: ["schedules", q, sort],
    queryFn: ({ pageParam }) =>
      schedules.list({ ...queryOf(parseSearch(q)), sort: sort || undefined, limit: PAGE_SIZE, cursor: pageParam }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
}

type Pages = InfiniteData<Page<Schedule>>;

/** How many schedules were made since the list was loaded. They are shown when they are asked for: rows do not jump. */
function useNewer(q: string, sort: string, data: Pages | undefined) {
  const client = useQueryClient();
  const [newest, setNewest] = useState<string[]>([]);
  const known = useMemo(() => new Set(data?.pages.flatMap((page) => page.items.map((row) => row.id))), [data]);
  useEffect(() => setNewest([]), [q, sort]);
  usePulseEffect((pulse, before) => {
    if (!data || sort !== "" || !hasChanged(pulse, before)) return;
    void schedules
      .list({ ...queryOf(parseSearch(q)), limit: NEWER_LOOKED_AT, fields: "id" })
      .then((page) => setNewest(page.items.map((row) => row.id)))
      .catch(() => undefined);
    void client.invalidateQueries({ queryKey: ["overview"] });
  });
  return {
    count: newerCount(newest, known),
    show: () => void client.resetQueries({ queryKey: ["schedules", q, sort] }),
  };
}

function SearchField({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const t = useTranslations("list");
  const [text, setText] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    if (value !== sent.current) setText(value);
    sent.current = value;
  }, [value]);
  useEffect(() => {
    if (text === sent.current) return undefined;
    const timer = setTimeout(() => {
      sent.current = text;
      onChange(text);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, onChange]);
  return (
    <input
      type="search"
      aria-label={t("search")}
      placeholder={t("search")}
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}

/** The filters of the search that are no facets, each with a button that takes it away. */
function Chips({ parsed, onChange }: { parsed: Parsed; onChange: (next: Parsed) => void }) {
  const t = useTranslations("list");
  const shown = parsed.chips.filter((chip) => chip.filter !== "health");
  if (shown.length === 0) return null;
  return (
    <ul className="row plain-list" aria-label={t("filters")}>
      {shown.map((chip) => (
        <li key={`${chip.filter}:${chip.value}`} className="chip filter">
          <span>
            <span className="soft">{chip.filter}</span> <Name>{chip.value}</Name>
          </span>
          <button
            type="button"
            className="plain"
            aria-label={t("removeFilter", { filter: `${chip.filter}:${chip.value}` })}
            onClick={() => onChange(without(parsed, chip))}
          >
            <X size={13} aria-hidden="true" />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** Filters by health with their counts, or by status where the server has no overview. */
function Facets({ parsed, onChange }: { parsed: ReturnType<typeof parseSearch>; onChange: (next: typeof parsed) => void }) {
  const overview = useOverview();
  const counts = overview.data?.counts;
  const [filter, values] = counts
    ? (["health", counts.health] as const)
    : (["status", { active: undefined, paused: undefined, done: undefined, dead: undefined }] as const);
  if (overview.isPending) return <div className="row facets" />;
  const isSet = (value: string) => parsed.chips.some((chip) => chip.filter === filter && chip.value === value);
  return (
    <div className="row facets">
      {Object.entries(values).map(([value, count]) => (
        <button
          key={value}
          type="button"
          aria-pressed={isSet(value)}
          onClick={() => onChange(toggled(parsed, filter, value))}
        >
          <Badge word={value} kind={filter} />
          {count === undefined ? null : <span className="soft">{count}</span>}
        </button>
      ))}
    </div>
  );
}

function ListProblem({ error, retry }: { error: unknown; retry: () => void }) {
  const t = useTranslations("list");
  if (error instanceof ApiError && error.status === 422 && error.errors[0])
    return (
      <div className="note warn" role="alert">
        {t("badFilter", { name: error.errors[0].field })} {error.errors[0].message}
      </div>
    );
  return <Problem error={error} retry={retry} />;
}

const LOOKS_LIKE_A_HOST = /^[\w-]+(\.[\w-]+)+$/;

/** Instead of rows: how to begin, or how to find something after all. */
function Nothing({ parsed, onSearch }: { parsed: Parsed; onSearch: (text: string) => void }) {
  const t = useTranslations("list");
  const host = LOOKS_LIKE_A_HOST.test(parsed.text) ? parsed.text : null;
  if (parsed.chips.length === 0 && !parsed.text)
    return (
      <div className="empty card">
        <h2>{t("empty")}</h2>
        <p>{t("emptyText")}</p>
        <Link to="/schedules/new" className="button primary">
          {t("create")}
        </Link>
      </div>
    );
  return (
    <div className="empty card">
      <p>{t("noMatch")}</p>
      <div className="actions">
        {host ? (
          <button type="button" className="primary" onClick={() => onSearch(searchText(toggled({ ...parsed, text: "" }, "host", host)))}>
            {t("callHost", { host })}
          </button>
        ) : null}
        <button type="button" onClick={() => onSearch("")}>
          {t("clear")}
        </button>
      </div>
    </div>
  );
}

function Rows(props: {
  rows: Schedule[];
  isNarrow: boolean;
  listKey: string[];
  selection: Selection;
  onSelect: (selection: Selection) => void;
  onEnd: () => void;
}) {
  const { rows, isNarrow, selection, onSelect, onEnd } = props;
  const t = useTranslations("list");
  const frame = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState(-1);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    estimateSize: () => (isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT),
    overscan: 12,
  });
  const visible = virtual.getVirtualItems();
  const last = visible.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= rows.length - 20) onEnd();
  }, [last, rows.length, onEnd]);
  const first = visible[0]?.index ?? 0;
  const drawn = rows.slice(first - (first % BLOCK), last + BLOCK - (last % BLOCK)).slice(0, MOST_STRIPS);
  const strips = useStrips(drawn);
  useLiveRows(props.listKey, drawn);
  const toggle = (id: string) => {
    // One that is taken out of all that match leaves those that are loaded.
    const ids = new Set(selection.all ? rows.map((row) => row.id) : selection.ids);
    if (!ids.delete(id)) ids.add(id);
    onSelect({ ids });
  };
  useRowKeys(rows, current, (index) => {
    setCurrent(index);
    virtual.scrollToIndex(index);
  }, toggle);
  return (
    <div className="rows card" role="table" aria-label={t("title")} aria-rowcount={rows.length}>
      <div role="rowgroup" className="rows-head">
        <div className="schedule-row header" role="row">
          <span role="columnheader">
            <input
              type="checkbox"
              aria-label={t("selectEvery")}
              checked={Boolean(selection.all)}
              onChange={(event) => onSelect({ ids: new Set(), all: event.target.checked })}
            />
          </span>
          <span role="columnheader">{t("name")}</span>
          <span role="columnheader">{t("state")}</span>
          <span role="columnheader" className="wide">
            {t("slots")}
          </span>
          <span role="columnheader" className="wide">
            {t("next")}
          </span>
        </div>
      </div>
      <div className="rows-frame" ref={frame} role="rowgroup" tabIndex={0} aria-label={t("title")}>
        <div style={{ height: virtual.getTotalSize(), position: "relative" }} role="presentation">
          {visible.map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            return (
              <Row
                key={row.id}
                row={row}
                top={item.start}
                isNarrow={isNarrow}
                index={item.index}
                isCurrent={item.index === current}
                isSelected={Boolean(selection.all) || selection.ids.has(row.id)}
                slots={strips?.[row.id]}
                onToggle={() => toggle(row.id)}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Row(props: {
  row: Schedule;
  top: number;
  isNarrow: boolean;
  index: number;
  isCurrent: boolean;
  isSelected: boolean;
  slots: Slots | undefined;
  onToggle: () => void;
}) {
  const { row, isNarrow } = props;
  const t = useTranslations("list");
  return (
    <div
      role="row"
      aria-rowindex={props.index + 1}
      className={`schedule-row${props.isCurrent ? " current" : ""}`}
      style={{ transform: `translateY(${props.top}px)`, height: isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT }}
    >
      <span role="cell">
        <input
          type="checkbox"
          aria-label={t("select", { name: row.name })}
          checked={props.isSelected}
          onChange={props.onToggle}
        />
      </span>
      <span role="cell" className="name">
        <Link to="/schedules/$id" params={{ id: row.id }} title={row.name}>
          <Name>{row.name}</Name>
        </Link>
        <span className="soft small ellipsis">
          <Sentence zone={row.timezone}>{row.spec_description}</Sentence>
        </span>
      </span>
      <span role="cell" className="tight">
        <HealthOf row={row} slots={props.slots} />
      </span>
      <span role="cell" className="slots">
        {props.slots ? (
          <SmallStrip slots={props.slots} name={row.name} width={isNarrow ? NARROW_STRIP_WIDTH : undefined} />
        ) : (
          <span className="soft">–</span>
        )}
      </span>
      <span role="cell" className="next small">
        <Time at={row.next_run_at} zone={row.timezone} short={isNarrow} relative={isNarrow} />
      </span>
    </div>
  );
}

/** The health in a word, and below it who paused it and when, or the last error. */
function HealthOf({ row, slots }: { row: Schedule; slots: Slots | undefined }) {
  const t = useTranslations();
  const pause = pauseOf(row, slots);
  const failures = row.health === "failing" ? failuresOf(slots) : 0;
  return (
    <>
      <span>
        <Badge word={row.health ?? row.status} kind={row.health ? "health" : "status"} />
        {failures > 1 ? <span className="soft small"> × {failures}</span> : null}
      </span>
      {pause ? (
        <span className="soft small ellipsis" title={pause.note ?? undefined}>
          {pause.by ? (
            <>
              <Name>{t("app.by", { name: pause.by })}</Name> ·{" "}
            </>
          ) : null}
          <Time at={pause.from} short />
        </span>
      ) : row.last_error && row.status !== "done" ? (
        <span className="soft small ellipsis" title={row.last_error}>
          {row.last_error}
        </span>
      ) : null}
    </>
  );
}

const stripsKey = (rows: Schedule[]) => ["strips", rows.map((row) => row.id).join(",")];

/** The strips of visible rows, asked for all at once. Without that call of the server the column stays empty. */
function useStrips(rows: Schedule[]): Record<string, Slots> | undefined {
  const ms = useInterval(5000);
  const query = useQuery({
    queryKey: stripsKey(rows),
    queryFn: () => schedules.slotsOfMany(rows.map((row) => row.id), STRIP_SLOTS),
    enabled: rows.length > 0,
    refetchInterval: (one) => (one.state.error ? false : ms),
    retry: false,
    placeholderData: (before) => before,
  });
  return query.data?.schedules;
}

/** Asks again for those visible rows that are due or running, and for all of them after a change. */
function useLiveRows(listKey: string[], rows: Schedule[]) {
  const client = useQueryClient();
  usePulseEffect((pulse, before) => {
    const ids = movedIds(rows, pulse, before);
    if (ids.length === 0) return;
    void Promise.all([
      schedules.list({ ids: ids.join(","), limit: ids.length }),
      schedules.slotsOfMany(ids, STRIP_SLOTS),
    ])
      .then(([answer, slots]) => {
        client.setQueryData<Pages>(listKey, (data) =>
          data && { ...data, pages: data.pages.map((page) => ({ ...page, items: withRows(page.items, ids, answer.items) })) },
        );
        client.setQueryData<{ schedules: Record<string, Slots> }>(stripsKey(rows), (known) => ({
          schedules: { ...known?.schedules, ...slots.schedules },
        }));
      })
      .catch(() => undefined);
  });
}

function useRowKeys(rows: Schedule[], current: number, move: (index: number) => void, toggle: (id: string) => void) {
  const navigate = useNavigate();
  const act = useAct();
  const t = useTranslations("schedule");
  const row = rows[current];
  const open = (tab?: string) => row && void navigate({ to: "/schedules/$id", params: { id: row.id }, search: { tab } });
  usePageKeys({
    j: () => move(Math.min(rows.length - 1, current + 1)),
    k: () => move(Math.max(0, current - 1)),
    x: () => row && toggle(row.id),
    Enter: () => open(),
    e: () => open("explain"),
    p: () =>
      row &&
      void act(
        () => (row.status === "paused" ? schedules.resume(row.id) : schedules.pause(row.id, {})),
        t(row.status === "paused" ? "resumed" : "paused"),
      ),
    r: () => row && void act(() => schedules.run(row.id), `${row.name}: ${t("started")}`),
  });
}

