/** The load of the next day, what an edit would do to it, and a proposal that lowers its peak. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useTranslations } from "use-intl";
import { fleet, stats } from "../api/client";
import type { Forecast, Spread } from "../api/types";
import { Loaded, Name, Problem, Time, useZone } from "../ui/controls";
import { clockText, instantText } from "../ui/time";
import { bucketsAbove, capacityOf, isTooMany, type Capacity } from "./capacity";
import { busiest, firesAt, heatRows, shadesOf } from "./heat";
import { SpreadForm } from "./SpreadForm";
import { WhatIf, type Change, type Tried } from "./WhatIf";
import "./load.css";

const route = getRouteApi("/load");
const GROUPS = ["none", "schedule", "workflow", "owner", "host"] as const;
const BUCKET_SECONDS = 300;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const MINUTES = Array.from({ length: 12 }, (_, index) => index * 5);
const BUSIEST = 10;
const MOST_GROUPS = 50;
/** Figures of so many days are within the most steps that the server returns. */
const MEASURED_DAYS = 5;
/** The most changes that a forecast takes. */
const MOST_CHANGES = 1000;

export default function Load() {
  const t = useTranslations("load");
  const { by = "none" } = route.useSearch();
  const navigate = useNavigate();
  const [tried, setTried] = useState<Tried[]>([]);
  const [proposal, setProposal] = useState<Spread | null>(null);
  // Rows are whole hours; what has passed of the first one is empty.
  const [start] = useState(() => Math.floor(Date.now() / HOUR_MS) * HOUR_MS);
  const span = { from: new Date(start).toISOString(), to: new Date(start + DAY_MS).toISOString() };
  const request = { ...span, bucket_seconds: BUCKET_SECONDS, by: by === "none" ? null : by };
  const changes: Change[] = proposal ? proposal.changes.slice(0, MOST_CHANGES).map(({ id, set }) => ({ id, set })) : tried.map(({ change }) => change);
  const stored = useForecast(request);
  const changed = useForecast({ ...request, changes }, changes.length > 0);
  const shown = changes.length > 0 && changed.data ? changed.data : stored.data;
  return (
    <div className="page">
      <div className="head">
        <div>
          <h1>{t("title")}</h1>
          <p className="soft">{t("text")}</p>
        </div>
        <label className="row">
          {t("by")}
          <select
            value={by}
            onChange={(event) =>
              void navigate({ to: "/load", search: { by: event.target.value === "none" ? undefined : event.target.value } })
            }
          >
            {GROUPS.map((group) => (
              <option key={group} value={group}>
                {t(group)}
              </option>
            ))}
          </select>
        </label>
      </div>
      {changed.error ? <Problem error={changed.error} /> : null}
      <Loaded query={stored}>
        {(before) => (
          <>
            {proposal && proposal.changes.length > changes.length ? (
              <p className="note warn">{t("firstChanges", { shown: changes.length, count: proposal.changes.length })}</p>
            ) : null}
            {changes.length > 0 && changed.data ? <Difference before={before} after={changed.data} /> : null}
            <Heat forecast={shown ?? before} />
            <Groups forecast={shown ?? before} />
            <div className="two">
              <SpreadForm proposal={proposal} onProposal={setProposal} />
              <WhatIf
                tried={tried}
                onChange={(next) => {
                  setProposal(null);
                  setTried(next);
                }}
              />
            </div>
          </>
        )}
      </Loaded>
    </div>
  );
}

/** The most runs of a bucket that started in time, in the last days. Where the server has no figures there is none. */
function useCapacity(): Capacity | null {
  const query = useQuery({
    queryKey: ["capacity"],
    queryFn: () => stats.lateness({ from: new Date(Date.now() - MEASURED_DAYS * DAY_MS).toISOString(), step: BUCKET_SECONDS }),
    retry: false,
    staleTime: Infinity,
  });
  return useMemo(() => capacityOf(query.data?.items ?? []), [query.data]);
}

function useForecast(body: object, enabled = true) {
  return useQuery({
    queryKey: ["forecast", body],
    queryFn: () => fleet.forecast(body),
    enabled,
    retry: false,
    placeholderData: keepPreviousData,
  });
}

function Heat({ forecast }: { forecast: Forecast }) {
  const t = useTranslations("load");
  const zone = useZone();
  const capacity = useCapacity();
  const rows = useMemo(() => heatRows(forecast.buckets), [forecast]);
  const top = busiest(forecast.buckets, BUSIEST);
  return (
    <section className="card stack" aria-label={t("title")}>
      {forecast.peak && forecast.peak.fires > 0 ? (
        <p className="sentence">
          {t("peak", { count: forecast.peak.fires, at: instantText(forecast.peak.at, zone) })}
        </p>
      ) : (
        <p>{t("empty")}</p>
      )}
      {capacity ? (
        <p className="soft">
          {t("capacity", { count: capacity.runs, at: instantText(capacity.at, zone), days: MEASURED_DAYS })}{" "}
          {t("above", { count: bucketsAbove(forecast.buckets, capacity) })}{" "}
          {capacity.lateFrom === null ? null : <strong>{t("lateFrom", { count: capacity.lateFrom })}</strong>}
        </p>
      ) : null}
      <div className="heat" aria-hidden="true">
        <div className="heat-row">
          <span />
          {MINUTES.map((minute) => (
            <span key={minute} className="heat-hour">
              +{minute}
            </span>
          ))}
        </div>
        {rows.map((row) => (
          <div key={row.at} className="heat-row">
            <span className="heat-hour">{clockText(row.at, zone)}</span>
            {row.cells.map((cell) => (
              <span
                key={cell.at}
                className={isTooMany(cell.fires, capacity) ? "heat-cell above" : "heat-cell"}
                title={t("bucket", { count: cell.fires, at: instantText(cell.at, zone) })}
                style={{ "--heat": cell.heat } as object}
              >
                {cell.heat === 1 ? "▲" : ""}
              </span>
            ))}
          </div>
        ))}
      </div>
      <details>
        <summary>{t("busiest")}</summary>
        <table className="plain">
          <thead>
            <tr>
              <th scope="col">{t("time")}</th>
              <th scope="col">{t("runs")}</th>
            </tr>
          </thead>
          <tbody>
            {top.map((bucket) => (
              <tr key={bucket.at}>
                <td>
                  <Time at={bucket.at} />
                </td>
                <td>{bucket.fires}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}

function Difference({ before, after }: { before: Forecast; after: Forecast }) {
  const t = useTranslations("load");
  const zone = useZone();
  const at = before.peak?.at ?? after.peak?.at;
  if (!at) return null;
  return (
    <p className="note sentence" role="status">
      {t("change", { at: instantText(at, zone), before: firesAt(before, at), after: firesAt(after, at) })}
    </p>
  );
}

/** The load of each group through the day: those with the most runs first. */
function Groups({ forecast }: { forecast: Forecast }) {
  const t = useTranslations("load");
  const zone = useZone();
  const { groups, buckets } = forecast;
  const shown = groups.slice(0, MOST_GROUPS);
  const most = Math.max(1, ...shown.flatMap((group) => group.buckets));
  const [first, last] = [buckets[0], buckets.at(-1)];
  if (shown.length === 0 || !first || !last) return null;
  return (
    <section className="card stack" aria-label={t("groups")}>
      <h2>{t("groups")}</h2>
      <div className="scroll">
        <table className="plain groups">
          <thead>
            <tr>
              <th scope="col">{t("group")}</th>
              <th scope="col" className="soft">
                {clockText(first.at, zone)} – {clockText(Date.parse(last.at) + BUCKET_SECONDS * 1000, zone)} {zone}
              </th>
              <th scope="col">{t("highest")}</th>
              <th scope="col">{t("runs")}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((group) => (
              <tr key={group.key}>
                <td>
                  <span className="clamped" title={group.name}>
                    <Name>{group.name || String(group.key ?? "–")}</Name>
                  </span>
                </td>
                <td>
                  <GroupHeat buckets={group.buckets} most={most} />
                </td>
                <td className="nowrap">{highestText(group.buckets, buckets, zone)}</td>
                <td>{group.fires}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {groups.length > shown.length ? <p className="soft small">{t("moreGroups", { count: groups.length - shown.length })}</p> : null}
    </section>
  );
}

function GroupHeat({ buckets, most }: { buckets: number[]; most: number }) {
  const paths = useMemo(() => shadesOf(buckets, most), [buckets, most]);
  return (
    <svg className="group-heat" viewBox={`0 0 ${buckets.length} 1`} preserveAspectRatio="none" aria-hidden="true">
      {paths.map((path, shade) => (
        <path key={shade} className={`shade-${shade}`} d={path} />
      ))}
    </svg>
  );
}

function highestText(own: number[], buckets: Forecast["buckets"], zone: string): string {
  const highest = Math.max(0, ...own);
  const at = buckets[own.indexOf(highest)]?.at;
  return at && highest > 0 ? `${highest} · ${clockText(at, zone)}` : "–";
}
