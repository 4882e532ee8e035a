/** The state of everything: four numbers, what needs attention, the latest runs. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useTranslations } from "use-intl";
import { executions } from "../api/client";
import { NotSupportedError } from "../api/http";
import type { Attention, Overview as Figures } from "../api/types";
import { RunTable } from "../runs/RunTable";
import { useOverview } from "../shell/Shell";
import { Badge, Loaded, Name, Problem, Time } from "../ui/controls";
import "./overview.css";

export default function Overview() {
  const t = useTranslations("overview");
  const overview = useOverview();
  const recent = useQuery({
    queryKey: ["recent-runs"],
    queryFn: () => executions.list({ limit: 10 }),
    refetchInterval: 5000,
  });
  const pulse = usePulse(!(overview.error instanceof NotSupportedError) && overview.data !== undefined);
  return (
    <div className="page">
      <div className="head">
        <h1>{t("title")}</h1>
        {overview.data ? (
          <span className="soft small" role="status">
            {pulse ? t("live") : t("polling", { seconds: 10 })}
          </span>
        ) : null}
      </div>
      {overview.error ? <Problem error={overview.error} /> : null}
      {overview.data ? <Numbers figures={{ ...overview.data, ...pulse }} /> : null}
      {overview.data ? <AttentionList items={overview.data.attention} /> : null}
      <section className="card stack">
        <h2>{t("recent")}</h2>
        <Loaded query={recent}>{(page) => <RunTable runs={page.items} withSchedule />}</Loaded>
      </section>
    </div>
  );
}

/** The figures of the pulse, once a second, while this page is visible. */
function usePulse(enabled: boolean): Partial<Figures> | null {
  const [pulse, setPulse] = useState<Partial<Figures> | null>(null);
  useEffect(() => {
    if (!enabled) return undefined;
    const source = new EventSource("/api/v1/live/");
    source.addEventListener("pulse", (event) => {
      const { due, running, in_flight, mode } = JSON.parse((event as MessageEvent<string>).data) as Record<string, never>;
      setPulse({ ...(due === undefined ? {} : { due }), running: running ?? in_flight, ...(mode ? { mode } : {}) });
    });
    source.addEventListener("error", () => {
      setPulse(null);
      // A server without the stream answers 404; trying again every few seconds would not help.
      if (source.readyState === EventSource.CLOSED) source.close();
    });
    return () => source.close();
  }, [enabled]);
  return pulse;
}

function Numbers({ figures }: { figures: Figures }) {
  const t = useTranslations("overview");
  const failing = (figures.counts.health.failing ?? 0) + (figures.counts.health.dead ?? 0);
  const workers = Array.isArray(figures.workers) ? figures.workers.length : figures.workers;
  return (
    <>
      <div className="numbers">
        <Link to="/schedules" search={{ q: "status:active" }} className="card number">
          <strong>{figures.counts.status.active ?? 0}</strong>
          <span>{t("active")}</span>
        </Link>
        <Link to="/schedules" search={{ q: "health:failing" }} className={`card number ${failing ? "tone-bad" : ""}`}>
          <strong>{failing}</strong>
          <span>{t("failing")}</span>
        </Link>
        <Link to="/upcoming" className="card number">
          <strong>{figures.due}</strong>
          <span>{t("due")}</span>
        </Link>
        <Link to="/runs" search={{ status: "running" }} className="card number">
          <strong>{figures.running}</strong>
          <span>{t("running")}</span>
        </Link>
      </div>
      <div className="row">
        {Object.entries(figures.counts.health).map(([health, count]) => (
          <Link key={health} to="/schedules" search={{ q: `health:${health}` }} className="button">
            <Badge word={health} kind="health" /> {count}
          </Link>
        ))}
        <span className="soft">
          {t("workers")}: {workers} · {t("mode")}: {figures.mode} · {t("overdue")}:{" "}
          {t("seconds", { count: Math.round(figures.oldest_overdue_seconds ?? 0) })}
        </span>
      </div>
    </>
  );
}

function AttentionList({ items }: { items: Attention[] }) {
  const t = useTranslations("overview");
  return (
    <section className="card stack">
      <h2>{t("attention")}</h2>
      {items.length === 0 ? <p className="soft">{t("calm")}</p> : null}
      <ul className="attention">
        {items.map((item) => (
          <li key={`${item.kind}${item.id}`}>
            <AttentionLink item={item} />
            <span>{item.sentence}</span>
            {item.since ? (
              <span className="soft small">
                <Time at={item.since} relative />
              </span>
            ) : null}
          </li>
        ))}
      </ul>
    </section>
  );
}

function AttentionLink({ item }: { item: Attention }) {
  const text = <Name>{item.name || item.id}</Name>;
  if (item.object_type === "schedule")
    return (
      <Link to="/schedules/$id" params={{ id: item.id }} search={{ tab: "explain" }}>
        {text}
      </Link>
    );
  if (item.object_type === "workflow" || item.object_type === "breaker") return <Link to="/breakers">{text}</Link>;
  return <strong>{text}</strong>;
}
