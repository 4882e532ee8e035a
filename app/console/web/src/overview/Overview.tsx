/** The state of everything: four numbers, what needs attention, figures by minute, workers, the latest runs. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { executions } from "../api/client";
import type { Attention, Overview as Figures } from "../api/types";
import { hasChanged } from "../live/pulse";
import { useInterval, useLive, usePulseEffect } from "../live/useLive";
import { RunTable } from "../runs/RunTable";
import { useSession } from "../sessionContext";
import { useOverview } from "../shell/Shell";
import { Badge, Loaded, Name, Problem, Sentence, Time } from "../ui/controls";
import { allows } from "../ui/scopes";
import { Charts } from "./Charts";
import { Workers } from "./Workers";
import "./overview.css";

export default function Overview() {
  const t = useTranslations("overview");
  const overview = useOverview();
  const session = useSession();
  return (
    <div className="page">
      <h1>{t("title")}</h1>
      {overview.error && !overview.data ? <Problem error={overview.error} retry={() => void overview.refetch()} /> : null}
      {overview.data ? (
        <>
          <Numbers figures={overview.data} />
          <div className="overview-columns">
            <AttentionList items={overview.data.attention} />
            <Workers isAdmin={session.role === "admin" && allows(session.scopes, "admin")} figures={overview.data} />
          </div>
        </>
      ) : null}
      <Charts />
      <Recent />
    </div>
  );
}

const RECENT_MS = 5000;

function Recent() {
  const t = useTranslations("overview");
  const client = useQueryClient();
  const recent = useQuery({
    queryKey: ["recent-runs"],
    queryFn: () => executions.list({ limit: 10 }),
    refetchInterval: useInterval(RECENT_MS),
  });
  // The overview and the latest runs are asked for again while something runs or is due, and after a change.
  usePulseEffect((pulse, before) => {
    const isBusy = pulse.running > 0 || pulse.due > 0 || before?.running !== pulse.running;
    if (isBusy || hasChanged(pulse, before)) void client.invalidateQueries({ queryKey: ["recent-runs"] });
    const moved = pulse.open_breakers !== before?.open_breakers || pulse.workers !== before.workers;
    if (moved || hasChanged(pulse, before) || JSON.stringify(pulse.outcomes) !== JSON.stringify(before?.outcomes))
      void client.invalidateQueries({ queryKey: ["overview"] });
  });
  return (
    <section className="card stack">
      <h2>{t("recent")}</h2>
      <Loaded query={recent}>
        {(page) => (page.items.length ? <RunTable runs={page.items} withSchedule /> : <p className="soft">{t("noRuns")}</p>)}
      </Loaded>
    </section>
  );
}

function Numbers({ figures }: { figures: Figures }) {
  const t = useTranslations("overview");
  const { pulse, isLive } = useLive();
  const now = isLive && pulse ? pulse : figures;
  const { health, status } = figures.counts;
  const wrong = ["failing", "dead", "silent", "invalid"].filter((word) => health[word]);
  const failing = wrong.reduce((sum, word) => sum + (health[word] ?? 0), 0);
  const overdue = now.oldest_overdue_seconds ?? 0;
  return (
    <>
      <div className="numbers">
        <Link to="/schedules" search={{ q: "status:active" }} className="card number">
          <strong>{status.active ?? 0}</strong>
          <span>{t("active")}</span>
        </Link>
        <Link
          to="/schedules"
          search={{ q: `health:${wrong[0] ?? "failing"}` }}
          className={`card number ${failing ? "tone-bad" : ""}`}
        >
          <strong>{failing}</strong>
          <span>{t("failing")}</span>
        </Link>
        <Link to="/upcoming" className={`card number ${overdue > LATE_SECONDS ? "tone-warn" : ""}`}>
          <strong>{now.due}</strong>
          <span>{overdue > LATE_SECONDS ? t("dueSince", { seconds: Math.round(overdue) }) : t("due")}</span>
        </Link>
        <Link to="/runs" search={{ status: "running" }} className="card number">
          <strong>{now.running}</strong>
          <span>{t("running")}</span>
        </Link>
      </div>
      <ul className="row healths" aria-label={t("health")}>
        {Object.entries(health)
          .filter(([, count]) => count > 0)
          .map(([word, count]) => (
            <li key={word}>
              <Link to="/schedules" search={{ q: `health:${word}` }} className="button">
                <Badge word={word} kind="health" /> {count}
              </Link>
            </li>
          ))}
      </ul>
    </>
  );
}

/** A schedule counts as late after this time. */
const LATE_SECONDS = 5;

function AttentionList({ items }: { items: Attention[] }) {
  const t = useTranslations("overview");
  return (
    <section className="card stack" aria-label={t("attention")}>
      <h2>{t("attention")}</h2>
      {items.length === 0 ? (
        <p className="row tone-good">
          <span aria-hidden="true">●</span>
          {t("calm")}
        </p>
      ) : null}
      <ul className="attention">
        {items.map((item) => (
          <li key={`${item.kind}${item.id}`} className={MILD.has(item.kind) ? "mild" : ""}>
            <AttentionLink item={item} />
            <span>
              <Sentence>{item.sentence}</Sentence>
            </span>
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

const MILD = new Set(["late", "queue_unreachable"]);

function AttentionLink({ item }: { item: Attention }) {
  const t = useTranslations("overview");
  const text = <Name>{item.name || item.id || ""}</Name>;
  if (item.object_type === "schedule" && item.id)
    return (
      <Link to="/schedules/$id" params={{ id: item.id }} search={{ tab: "explain" }}>
        {text}
      </Link>
    );
  if (item.object_type === "workflow" || item.object_type === "breaker") return <Link to="/breakers">{text}</Link>;
  return <strong>{t("deployment")}</strong>;
}
