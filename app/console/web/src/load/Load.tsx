/** The load of the next day, what an edit would do to it, and a proposal that lowers its peak. */

import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { fleet, schedules } from "../api/client";
import type { Forecast, Spread } from "../api/types";
import { Loaded, Problem, ScopedButton, Time, useAct, useZone } from "../ui/controls";
import { clockText, instantText } from "../ui/time";
import { busiest, firesAt, heatRows } from "./heat";
import "./load.css";

const route = getRouteApi("/load");
const GROUPS = ["none", "schedule", "workflow", "owner", "host"] as const;
const BUCKET_SECONDS = 300;
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const BUSIEST = 10;

type Change = { id: string; set: object } | { draft: object };

export default function Load() {
  const t = useTranslations("load");
  const { by = "none" } = route.useSearch();
  const navigate = useNavigate();
  const [changes, setChanges] = useState<Change[]>([]);
  const [start] = useState(() => Math.ceil(Date.now() / (5 * MINUTE_MS)) * 5 * MINUTE_MS);
  const span = { from: new Date(start).toISOString(), to: new Date(start + DAY_MS).toISOString() };
  const request = { ...span, bucket_seconds: BUCKET_SECONDS, by: by === "none" ? null : by };
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
            {changes.length > 0 && changed.data ? <Difference before={before} after={changed.data} /> : null}
            <Heat forecast={shown ?? before} />
            <div className="two">
              <WhatIf changes={changes} onChange={setChanges} />
              <SpreadForm />
            </div>
            <Groups forecast={shown ?? before} />
          </>
        )}
      </Loaded>
    </div>
  );
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
      <div className="heat" aria-hidden="true">
        {rows.map((row) => (
          <div key={row.at} className="heat-row">
            <span className="heat-hour">{clockText(row.at, zone)}</span>
            {row.cells.map((cell) => (
              <span
                key={cell.at}
                className="heat-cell"
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

function WhatIf({ changes, onChange }: { changes: Change[]; onChange: (changes: Change[]) => void }) {
  const t = useTranslations("load");
  const [id, setId] = useState("");
  const [cron, setCron] = useState("*/5 * * * *");
  function submit(event: FormEvent) {
    event.preventDefault();
    const change: Change = id.trim() ? { id: id.trim(), set: { cron } } : { draft: { name: "draft", cron } };
    onChange([...changes, change]);
  }
  return (
    <section className="card stack">
      <h2>{t("whatIf")}</h2>
      <p className="soft">{t("whatIfText")}</p>
      <form className="stack" onSubmit={submit}>
        <label className="field">
          <span>{t("scheduleId")}</span>
          <input className="mono" value={id} onChange={(event) => setId(event.target.value)} />
        </label>
        <label className="field">
          <span>{t("cron")}</span>
          <input className="mono" required value={cron} onChange={(event) => setCron(event.target.value)} />
        </label>
        <div className="actions">
          <button type="submit">{t("try")}</button>
          {changes.length ? (
            <button type="button" onClick={() => onChange([])}>
              {t("reset")}
            </button>
          ) : null}
        </div>
      </form>
    </section>
  );
}

function SpreadForm() {
  const t = useTranslations("load");
  const act = useAct();
  const client = useQueryClient();
  const [shift, setShift] = useState("600");
  const [byJitter, setByJitter] = useState(false);
  const [proposal, setProposal] = useState<Spread | null>(null);
  async function apply(found: Spread) {
    let count = 0;
    for (const change of found.changes) {
      const done = await act(() => schedules.change(change.id, change.set ?? {}));
      if (!done) return;
      count += 1;
    }
    setProposal(null);
    await act(() => client.invalidateQueries(), t("applied", { count }));
  }
  return (
    <section className="card stack">
      <h2>{t("spread")}</h2>
      <p className="soft">{t("spreadText")}</p>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void act(() => fleet.spread({ max_shift_seconds: Number(shift), by_jitter: byJitter })).then((found) =>
            setProposal(found ?? null),
          );
        }}
      >
        <label className="field">
          <span>{t("shift")}</span>
          <input inputMode="numeric" required pattern="\d+" value={shift} onChange={(event) => setShift(event.target.value)} />
        </label>
        <label className="row">
          <input type="checkbox" checked={byJitter} onChange={(event) => setByJitter(event.target.checked)} />
          {t("byJitter")}
        </label>
        <div className="actions">
          <button type="submit">{t("propose")}</button>
        </div>
      </form>
      {proposal ? (
        <div className="note stack">
          <strong>
            {t("proposal", {
              before: proposal.before.fires,
              after: proposal.after.fires,
              count: proposal.changes.length,
            })}
          </strong>
          <ul className="small">
            {proposal.changes.slice(0, BUSIEST).map((change) => (
              <li key={change.id}>
                <Link to="/schedules/$id" params={{ id: change.id }}>
                  <bdi>{change.name ?? change.id}</bdi>
                </Link>{" "}
                <code>{JSON.stringify(change.set)}</code>
              </li>
            ))}
          </ul>
          <div className="actions">
            <ScopedButton needs="write" className="primary" onClick={() => void apply(proposal)}>
              {t("apply")}
            </ScopedButton>
          </div>
        </div>
      ) : null}
    </section>
  );
}

function Groups({ forecast }: { forecast: Forecast }) {
  const t = useTranslations("load");
  const groups = forecast.groups ?? [];
  if (groups.length === 0) return null;
  const fires = (group: (typeof groups)[number]) => group.fires ?? group.buckets?.reduce((sum, one) => sum + one, 0) ?? 0;
  return (
    <section className="card">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">{t("by")}</th>
            <th scope="col">{t("runs")}</th>
          </tr>
        </thead>
        <tbody>
          {groups
            .toSorted((a, b) => fires(b) - fires(a))
            .slice(0, 50)
            .map((group, index) => (
              <tr key={index}>
                <td>
                  <bdi>{group.name ?? group.key ?? "–"}</bdi>
                </td>
                <td>{fires(group)}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </section>
  );
}
