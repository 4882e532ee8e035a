import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useTranslations } from "use-intl";
import { fleet, stats } from "../api/client";
import { LatenessChart, OutcomeChart, type Range } from "../charts/Charts";
import { Loaded } from "../ui/controls";

/** Hours that the charts can show, and the seconds of their steps. */
const SPANS: Record<number, number> = { 1: 60, 6: 300, 24: 900 };
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const MOST_EVENTS = 100;

/** Outcomes and lateness of the last hours, of all workflows or of one. */
export function Charts({ workflow }: { workflow?: number }) {
  const t = useTranslations("charts");
  const [hours, setHours] = useState(1);
  const figures = useFigures(hours, workflow);
  return (
    <section className="stack" aria-label={t("title")}>
      <div className="row">
        <h2 className="grow">{t("title")}</h2>
        {Object.keys(SPANS).map((count) => (
          <button key={count} type="button" aria-pressed={hours === Number(count)} onClick={() => setHours(Number(count))}>
            {t("hours", { count: Number(count) })}
          </button>
        ))}
      </div>
      <Loaded query={figures}>
        {({ range, outcomes, lateness, events }) => (
          <div className="two">
            <div className="card stack">
              <h3>{t("outcomes")}</h3>
              <OutcomeChart steps={outcomes} range={range} />
            </div>
            <div className="card stack">
              <h3>{t("lateness")}</h3>
              <LatenessChart steps={lateness} range={range} events={events} />
            </div>
          </div>
        )}
      </Loaded>
    </section>
  );
}

/** The figures of the time that ends now, once a minute: the server has them by the minute. */
function useFigures(hours: number, workflow?: number) {
  const step = SPANS[hours] ?? 60;
  const query = useQuery({
    queryKey: ["figures", hours, workflow],
    queryFn: async () => {
      const to = Math.ceil(Date.now() / (step * 1000)) * step * 1000;
      const range: Range = { from: to - hours * HOUR_MS, to, stepMs: step * 1000 };
      const span = { from: new Date(range.from).toISOString(), to: new Date(to).toISOString() };
      const [outcomes, lateness, audit] = await Promise.all([
        stats.outcomes({ ...span, step, workflow_id: workflow }),
        stats.lateness({ ...span, step, workflow_id: workflow }),
        fleet.audit({ ...span, limit: MOST_EVENTS, ...(workflow ? { object_type: "workflow", object_id: workflow } : {}) }),
      ]);
      return { range, outcomes: outcomes.items, lateness: lateness.items, audit: audit.items };
    },
    refetchInterval: MINUTE_MS / 3,
    retry: false,
  });
  const data = useMemo(() => {
    if (!query.data) return undefined;
    const changes = query.data.audit.filter((event) => ["schedule", "workflow", "settings"].includes(event.object_type));
    const events = changes.map((event) => ({
      at: event.at,
      text: [event.actor, event.action, event.object_name].filter(Boolean).join(" "),
    }));
    return { ...query.data, events };
  }, [query.data]);
  return { ...query, data };
}
