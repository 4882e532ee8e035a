import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { schedules } from "../api/client";
import type { Schedule, Slots } from "../api/types";
import { movedIds } from "../live/pulse";
import { useInterval, usePulseEffect } from "../live/useLive";
import { SmallStrip } from "../strip/Strip";
import { Badge, Loaded, Name, ScopedButton, Sentence, Time, useAct } from "../ui/controls";

const SHOWN = 10;
const SLOTS = 30;
const REFRESH_MS = 5000;

export interface ClockData {
  rows: Schedule[];
  total: number;
  strips: Record<string, Slots>;
}

/** The schedules that start a workflow; the clock of the canvas shows the next of them. */
export function useClock(workflow: number | undefined) {
  const client = useQueryClient();
  const query = useQuery({
    queryKey: ["clock", workflow],
    queryFn: async (): Promise<ClockData> => {
      const page = await schedules.list({ workflow_id: workflow, sort: "next_run_at", limit: SHOWN });
      const ids = page.items.map((row) => row.id);
      const strips = ids.length ? (await schedules.slotsOfMany(ids, SLOTS)).schedules : {};
      return { rows: page.items, total: page.total ?? ids.length, strips };
    },
    enabled: workflow !== undefined,
    refetchInterval: useInterval(REFRESH_MS),
  });
  usePulseEffect((pulse, before) => {
    if (query.data && movedIds(query.data.rows, pulse, before).length)
      void client.invalidateQueries({ queryKey: ["clock", workflow] });
  });
  return query;
}

export function ClockPanel({ workflow }: { workflow: number }) {
  const t = useTranslations("workflows");
  const query = useClock(workflow);
  return (
    <section className="stack" aria-label={t("schedules")}>
      <div className="row">
        <h3 className="grow">{t("schedules")}</h3>
        <Link to="/schedules/new" search={{ workflow: String(workflow) }} className="button">
          {t("addSchedule")}
        </Link>
      </div>
      <Loaded query={query}>
        {({ rows, total, strips }) => (
          <>
            {rows.length === 0 ? <p className="soft">{t("noSchedules")}</p> : null}
            {rows.map((row) => (
              <div key={row.id} className="clock-schedule">
                <Link to="/schedules/$id" params={{ id: row.id }}>
                  <Name>{row.name}</Name>
                </Link>
                <span className="small">
                  <Sentence zone={row.timezone}>{row.spec_description}</Sentence>
                </span>
                <span className="row small">
                  <Badge word={row.health ?? row.status} kind={row.health ? "health" : "status"} />
                  {row.next_run_at ? <Time at={row.next_run_at} zone={row.timezone} relative /> : null}
                </span>
                {strips[row.id] ? <SmallStrip slots={strips[row.id] ?? { items: [], spans: [] }} name={row.name} /> : null}
                <ClockActions row={row} />
              </div>
            ))}
            {total > rows.length ? (
              <Link to="/schedules" search={{ q: `workflow:${workflow}` }}>
                {t("allSchedules", { count: total })}
              </Link>
            ) : null}
          </>
        )}
      </Loaded>
    </section>
  );
}

export function ClockActions({ row }: { row: Schedule }) {
  const t = useTranslations("schedule");
  const act = useAct();
  const client = useQueryClient();
  const change = (work: () => Promise<unknown>, done?: string) => void act(work, done).then(() => client.invalidateQueries());
  return (
    <div className="actions">
      <ScopedButton needs="operate" onClick={() => change(() => schedules.run(row.id), t("started"))}>
        {t("run")}
      </ScopedButton>
      {row.status === "active" ? (
        <ScopedButton needs="operate" onClick={() => change(() => schedules.pause(row.id, {}), t("paused"))}>
          {t("pause")}
        </ScopedButton>
      ) : row.status === "paused" ? (
        <ScopedButton needs="operate" onClick={() => change(() => schedules.resume(row.id), t("resumed"))}>
          {t("resume")}
        </ScopedButton>
      ) : null}
    </div>
  );
}
