/** The next seven days as a grid of hours; an hour or a span shows what fires in it, skips it, or pauses until its end. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type PointerEvent } from "react";
import { useTranslations } from "use-intl";
import { fleet, schedules } from "../api/client";
import type { ClosedSpan, Upcoming, UpcomingList } from "../api/types";
import { usePreferences } from "../preferences";
import { BulkDialog } from "../schedules/BulkBar";
import { useOverview } from "../shell/Shell";
import { Loaded, Name, ScopedButton, useAct, useZone } from "../ui/controls";
import { clockText, instantText } from "../ui/time";
import { daysOf } from "./agenda";
import {
  BUCKET_SECONDS,
  closedIn,
  DAYS,
  isWithin,
  shadeOf,
  spanOf,
  weekOf,
  type HourCell,
  type TimeSpan,
  type WeekDay,
} from "./weekGrid";
import "./week.css";

const DAY_MS = 86_400_000;
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const two = (hour: number) => String(hour).padStart(2, "0");

export function Week({ span, onSpan }: { span?: TimeSpan; onSpan: (span?: TimeSpan) => void }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const isOff = useOverview().data?.schedules_enabled === false;
  const [start] = useState(() => Math.floor(Date.now() / (BUCKET_SECONDS * 1000)) * BUCKET_SECONDS * 1000);
  const query = useQuery({
    queryKey: ["week", start],
    queryFn: () =>
      fleet.forecast({
        from: new Date(start).toISOString(),
        to: new Date(start + DAYS * DAY_MS).toISOString(),
        bucket_seconds: BUCKET_SECONDS,
        by: "schedule",
      }),
    retry: false,
  });
  const days = useMemo(() => (query.data ? weekOf(query.data, zone) : []), [query.data, zone]);
  return (
    <Loaded query={query}>
      {({ closed = [] }) => (
        <>
          {isOff ? <p className="note warn">{t("off")}</p> : null}
          <Closed spans={closed} />
          <div className="card scroll" role="region" aria-label={t("week")} tabIndex={0}>
            <Grid days={days} closed={closed} isOff={isOff} picked={span} onPick={onSpan} />
          </div>
          {span ? (
            <Picked key={span.from + span.to} span={span} />
          ) : (
            <p className="soft">
              {t("pick")} {t("drag")}
            </p>
          )}
        </>
      )}
    </Loaded>
  );
}

const STEPS: Record<string, [rows: number, columns: number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** Moves the focus to the next hour of the grid in which something fires. */
function moveFocus(event: KeyboardEvent<HTMLTableElement>) {
  const step = STEPS[event.key];
  let cell = (event.target as Element).closest("td");
  if (!step || !cell) return;
  event.preventDefault();
  const { rows } = event.currentTarget;
  while (cell) {
    const row: HTMLTableRowElement | undefined = rows[(cell.parentElement as HTMLTableRowElement).rowIndex + step[0]];
    cell = (row?.cells[cell.cellIndex + step[1]] as HTMLTableCellElement | undefined) ?? null;
    const button = cell?.querySelector("button");
    if (button) {
      button.focus();
      return;
    }
  }
}

function Grid(props: {
  days: WeekDay[];
  closed: ClosedSpan[];
  isOff: boolean;
  picked?: TimeSpan;
  onPick: (span?: TimeSpan) => void;
}) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const { locale } = usePreferences();
  const { picked, onPick } = props;
  const [dragged, setDragged] = useState<TimeSpan>();
  const began = useRef<HourCell>(undefined);
  const weekday = new Intl.DateTimeFormat(locale, { weekday: "short", timeZone: "UTC" });
  const most = Math.max(1, ...props.days.flatMap((day) => [...day.hours.values()].map((cell) => cell.fires)));
  function choose(cell: HourCell, event: MouseEvent) {
    const isAgain = picked?.from === cell.from && picked.to === cell.to;
    onPick(event.shiftKey && picked ? spanOf(picked, cell) : isAgain ? undefined : { from: cell.from, to: cell.to });
  }
  function begin(cell: HourCell, event: PointerEvent) {
    began.current = event.pointerType === "mouse" && event.button === 0 ? cell : undefined;
  }
  function extend(cell: HourCell, event: PointerEvent) {
    if (began.current && event.buttons === 1) setDragged(spanOf(began.current, cell));
  }
  function end() {
    began.current = undefined;
    if (dragged) onPick(dragged);
    setDragged(undefined);
  }
  return (
    <table className={props.isOff ? "week off" : "week"} onPointerUp={end} onKeyDown={moveFocus}>
      <caption className="soft small">{zone}</caption>
      <thead>
        <tr>
          <td />
          {props.days.map(({ day }) => (
            <th key={day} scope="col">
              {weekday.format(new Date(day))} <span className="soft">{day.slice(5)}</span>
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {HOURS.map((hour) => (
          <tr key={hour}>
            <th scope="row">{two(hour)}:00</th>
            {props.days.map(({ day, hours }) => {
              const cell = hours.get(hour);
              if (!cell) return <td key={day} className="outside" />;
              const isPicked = isWithin(cell, dragged ?? picked);
              const closed = closedIn(cell, props.closed);
              return (
                <td
                  key={day}
                  className={[closed.length ? "closed" : "", isPicked ? "picked" : ""].join(" ").trim() || undefined}
                  title={closed.join(", ") || undefined}
                  onPointerDown={(event) => begin(cell, event)}
                  onPointerEnter={(event) => extend(cell, event)}
                >
                  {cell.fires > 0 ? (
                    <button
                      type="button"
                      className="hour"
                      aria-pressed={isPicked}
                      style={{ "--heat": shadeOf(cell, most) } as object}
                      onClick={(event) => choose(cell, event)}
                    >
                      <span className="visually-hidden">
                        {day} {two(hour)}:00
                      </span>
                      <strong>{t("fires", { count: cell.fires })}</strong>
                      <bdi>{cell.names[0]}</bdi>
                    </button>
                  ) : null}
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What the hatched hours are: the entries of calendars that leave slots out. */
function Closed({ spans }: { spans: ClosedSpan[] }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  if (spans.length === 0) return null;
  return (
    <section className="row small" aria-label={t("closedDays")}>
      <strong>{t("closedDays")}</strong>
      {spans.map((span) => (
        <span key={span.calendar + span.from} className="chip">
          <Name>{`${span.calendar}: ${span.entry}`}</Name>
          <span className="soft">
            {instantText(span.from, zone, false)} – {instantText(span.to, zone, false)}
          </span>
        </span>
      ))}
    </section>
  );
}

const SHOWN = 200;

function Picked({ span }: { span: TimeSpan }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const query = useQuery({
    queryKey: ["upcoming", span.from, span.to],
    queryFn: () => fleet.upcoming({ from: span.from, to: span.to, limit: SHOWN }),
    retry: false,
  });
  const panel = useRef<HTMLElement>(null);
  // The grid is taller than most screens.
  useEffect(() => {
    void panel.current?.scrollIntoView({ block: "nearest" });
  }, [query.isPending]);
  const [from, to] = [instantText(span.from, zone, false), instantText(span.to, zone, false)];
  return (
    <section ref={panel} className="card stack" aria-label={t("inHour")}>
      <h2>
        {from} – {from.slice(0, 10) === to.slice(0, 10) ? clockText(span.to, zone) : to} <span className="soft">{zone}</span>
      </h2>
      <Loaded query={query}>
        {(list) => (
          <>
            {list.is_complete && list.items.length ? <SpanActions items={list.items} until={span.to} /> : null}
            <Completeness list={list} most={SHOWN} />
            <Fires items={list.items} />
          </>
        )}
      </Loaded>
    </section>
  );
}

/** Says that nothing is due, or that the list may not have all that is. */
export function Completeness({ list, most }: { list: UpcomingList; most: number }) {
  const t = useTranslations("upcoming");
  const { items } = list;
  if (!list.is_complete) return <p className="note">{t(items.length < most ? "partial" : "cut", { count: most })}</p>;
  return items.length ? null : <p className="soft">{t("empty")}</p>;
}

/** What can be done with all fires of a span: leave them out, or pause their schedules until its end. */
function SpanActions({ items, until }: { items: Upcoming[]; until: string }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const skip = useSkip();
  const [pausing, setPausing] = useState(false);
  const ids = [...new Set(items.map((item) => item.schedule_id))];
  const title = t("pauseThem", { count: ids.length, at: instantText(until, zone) });
  return (
    <div className="actions">
      {items.length > 1 ? (
        <ScopedButton needs="operate" onClick={() => void skip(items)}>
          {t("skipAll", { count: items.length })}
        </ScopedButton>
      ) : null}
      <ScopedButton needs="operate" onClick={() => setPausing(true)}>
        {title}
      </ScopedButton>
      {pausing ? (
        <BulkDialog
          request={{ action: "pause", ids, arguments: { until } }}
          title={title}
          onClose={() => setPausing(false)}
        />
      ) : null}
    </div>
  );
}

/** Leaves slots out, those of a schedule at once. */
function useSkip() {
  const t = useTranslations("skip");
  const act = useAct();
  const client = useQueryClient();
  return async (items: Upcoming[]) => {
    const bySchedule = Map.groupBy(items, (item) => item.schedule_id);
    await act(
      async () => {
        for (const [id, own] of bySchedule) await schedules.skip(id, { slots: own.map(({ slot }) => slot) });
      },
      t("done", { count: items.length }),
    );
    await client.invalidateQueries();
  };
}

/** Fires with their times, schedules, and the button that leaves their slots out. */
function Fires({ items }: { items: Upcoming[] }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const skip = useSkip();
  const days = daysOf(items, zone);
  return (
    <table className="plain agenda">
      <tbody>
        {days.flatMap(({ day, rows }) =>
          rows.map((row) => (
            <tr key={day + row.clock + row.item.schedule_id}>
              <td className="nowrap">
                {days.length > 1 ? <span className="soft">{day.slice(5)} </span> : null}
                <time dateTime={row.at}>{row.clock}</time>
              </td>
              <td>
                <Link
                  to="/schedules/$id"
                  params={{ id: row.item.schedule_id }}
                  search={{ tab: "explain", at: row.item.slot }}
                >
                  <Name>{row.item.schedule_name}</Name>
                </Link>
                {row.items.length > 1 ? <span className="soft"> × {row.items.length}</span> : null}
              </td>
              <td className="soft small">
                <Name>{row.item.workflow_name}</Name>
              </td>
              <td>
                <ScopedButton needs="operate" onClick={() => void skip(row.items)}>
                  {t("skipAll", { count: row.items.length })}
                </ScopedButton>
              </td>
            </tr>
          )),
        )}
      </tbody>
    </table>
  );
}
