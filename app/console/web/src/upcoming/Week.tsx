/** The next seven days as a grid of hours; an hour shows what fires in it, and skips it. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useTranslations } from "use-intl";
import { fleet, schedules } from "../api/client";
import type { Upcoming } from "../api/types";
import { usePreferences } from "../preferences";
import { Loaded, Name, ScopedButton, useAct, useZone } from "../ui/controls";
import { clockText, instantText } from "../ui/time";
import { BUCKET_SECONDS, DAYS, shadeOf, weekOf, type HourCell, type WeekDay } from "./weekGrid";
import "./week.css";

const DAY_MS = 86_400_000;
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const two = (hour: number) => String(hour).padStart(2, "0");

export function Week({ at, onAt }: { at?: string; onAt: (at?: string) => void }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
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
  const picked = days.flatMap((day) => [...day.hours.values()]).find((cell) => cell.from === at);
  return (
    <Loaded query={query}>
      {() => (
        <>
          <div className="card scroll" role="region" aria-label={t("week")} tabIndex={0}>
            <Grid days={days} picked={picked} onPick={(cell) => onAt(cell.from === at ? undefined : cell.from)} />
          </div>
          {picked ? <Hour cell={picked} /> : <p className="soft">{t("pick")}</p>}
        </>
      )}
    </Loaded>
  );
}

function Grid(props: { days: WeekDay[]; picked?: HourCell; onPick: (cell: HourCell) => void }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const { locale } = usePreferences();
  const weekday = new Intl.DateTimeFormat(locale, { weekday: "short", timeZone: "UTC" });
  const most = Math.max(1, ...props.days.flatMap((day) => [...day.hours.values()].map((cell) => cell.fires)));
  return (
    <table className="week">
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
              return (
                <td key={day} className={cell ? "" : "outside"}>
                  {cell && cell.fires > 0 ? (
                    <button
                      type="button"
                      className="hour"
                      aria-pressed={cell === props.picked}
                      style={{ "--heat": shadeOf(cell, most) } as object}
                      onClick={() => props.onPick(cell)}
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

const SHOWN = 200;
/** Both ends of the span belong to what is listed; the next hour does not. */
const justBefore = (at: string) => new Date(Date.parse(at) - 1).toISOString();

function Hour({ cell }: { cell: HourCell }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const query = useQuery({
    queryKey: ["upcoming", cell.from, cell.to],
    queryFn: () => fleet.upcoming({ from: cell.from, to: justBefore(cell.to), limit: SHOWN }),
    retry: false,
  });
  return (
    <section className="card stack" aria-label={t("inHour")}>
      <h2>
        {instantText(cell.from, zone, false)} – {clockText(cell.to, zone)} <span className="soft">{zone}</span>
      </h2>
      <Loaded query={query}>{({ items }) => (items.length ? <Fires items={items} /> : <p className="soft">{t("empty")}</p>)}</Loaded>
    </section>
  );
}

/** Fires with their times, schedules, and the button that leaves the slot out. */
function Fires({ items }: { items: Upcoming[] }) {
  const t = useTranslations();
  const zone = useZone();
  const act = useAct();
  const client = useQueryClient();
  async function skip(item: Upcoming) {
    await act(() => schedules.skip(item.schedule_id, { slots: [item.slot] }), t("skip.done", { count: 1 }));
    await client.invalidateQueries();
  }
  return (
    <table className="plain">
      <tbody>
        {items.map((item) => (
          <tr key={`${item.schedule_id} ${item.slot}`}>
            <td>
              <time dateTime={item.at}>{clockText(item.at, zone)}</time>
            </td>
            <td>
              <Link to="/schedules/$id" params={{ id: item.schedule_id }} search={{ tab: "explain", at: item.slot }}>
                <Name>{item.schedule_name}</Name>
              </Link>
            </td>
            <td className="soft small">
              <Name>{item.workflow_name}</Name>
            </td>
            <td className="actions">
              <ScopedButton needs="operate" onClick={() => void skip(item)}>
                {t("skip.this")}
              </ScopedButton>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
