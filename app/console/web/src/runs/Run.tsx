/** One run: its state, the steps on an axis of time, what went in and what came out. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { executions } from "../api/client";
import { ApiError } from "../api/http";
import type { ExecutionDetail } from "../api/types";
import { Missing } from "../shell/Shell";
import { Badge, Loading, Name, Problem, ScopedButton, Time, toneOf, useAct, useNow } from "../ui/controls";
import { durationText } from "../ui/time";
import { useScheduleNames } from "./useScheduleNames";
import { barsOf } from "./waterfall";
import "./run.css";

const route = getRouteApi("/runs/$id");
const ENDED = new Set(["success", "failed", "timed_out", "lost", "cancelled", "skipped", "blocked"]);
const REFRESH_MS = 1000;

export default function Run() {
  const { id } = route.useParams();
  const query = useQuery({
    queryKey: ["run", id],
    queryFn: () => executions.read(id),
    refetchInterval: (one) => (one.state.data && ENDED.has(one.state.data.status) ? false : REFRESH_MS),
  });
  if (query.error instanceof ApiError && query.error.status === 404) return <Missing />;
  if (query.error && !query.data) return <Problem error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Loading />;
  return <Page run={query.data} />;
}

function Page({ run }: { run: ExecutionDetail }) {
  const t = useTranslations("runs");
  const names = useScheduleNames([run.scheduled_job_id]);
  return (
    <div className="page">
      <div className="head">
        <div className="tight">
          <div className="row">
            <h1>
              {t("schedule")} · <Time at={run.scheduled_for} />
            </h1>
            <Badge word={run.status} kind="status" />
          </div>
          <p className="soft mono small">{run.id}</p>
        </div>
        <RunActions run={run} />
      </div>
      {run.error ? (
        <div className="note bad">
          <Name>{run.error}</Name>
        </div>
      ) : null}
      <section className="card">
        <dl className="facts">
          <dt>{t("trigger")}</dt>
          <dd>
            {run.trigger} · {t("attempt")} {run.retry_attempt + 1}
          </dd>
          <dt>{t("started")}</dt>
          <dd>
            <Time at={run.started_at} />
          </dd>
          <dt>{t("duration")}</dt>
          <dd>{durationText(run.duration_ms)}</dd>
          {run.scheduled_job_id ? (
            <>
              <dt>{t("schedule")}</dt>
              <dd>
                <Link
                  to="/schedules/$id"
                  params={{ id: run.scheduled_job_id }}
                  search={{ tab: "explain", at: run.scheduled_for }}
                >
                  <Name>{names[run.scheduled_job_id] ?? run.scheduled_job_id}</Name>
                </Link>
              </dd>
            </>
          ) : null}
        </dl>
      </section>
      <Steps run={run} />
      <section className="card stack">
        <h2>{t("payload")}</h2>
        <pre tabIndex={0} aria-label={t("payload")}>
          {JSON.stringify(run.payload, null, 2)}
        </pre>
      </section>
    </div>
  );
}

function RunActions({ run }: { run: ExecutionDetail }) {
  const t = useTranslations("runs");
  const act = useAct();
  const client = useQueryClient();
  const navigate = useNavigate();
  return (
    <div className="actions">
      {run.workflow_id === null ? null : (
        <Link
          className="button"
          to="/workflows/$id"
          params={{ id: String(run.workflow_id) }}
          search={{ run: run.id }}
        >
          {t("onCanvas")}
        </Link>
      )}
      {ENDED.has(run.status) ? (
        <ScopedButton
          needs="operate"
          onClick={() =>
            void act(() => executions.again(run.id)).then(
              (started) => started && navigate({ to: "/runs/$id", params: { id: started.id } }),
            )
          }
        >
          {t("again")}
        </ScopedButton>
      ) : (
        <ScopedButton
          needs="operate"
          className="danger"
          onClick={() =>
            void act(() => executions.cancel(run.id), t("cancelled")).then(() => client.invalidateQueries({ queryKey: ["run"] }))
          }
        >
          {t("cancel")}
        </ScopedButton>
      )}
    </div>
  );
}

function Steps({ run }: { run: ExecutionDetail }) {
  const t = useTranslations("runs");
  const now = useNow(ENDED.has(run.status) ? null : 1000);
  const bars = barsOf(run.nodes, now);
  return (
    <section className="card stack">
      <h2>{t("nodes")}</h2>
      <ol className="waterfall">
        {run.nodes.map((node, index) => {
          const bar = bars[index];
          return (
            <li key={`${node.node_id}${node.started_at}`}>
              <details>
                <summary>
                  <span className="step">
                    <Name>{node.node_id}</Name> <span className="soft small">{node.type}</span>
                  </span>
                  <Badge word={node.status} kind="status" />
                  <span className="track" aria-hidden="true">
                    <span
                      className={`tone-${toneOf(node.status)}`}
                      style={{ left: `${(bar?.left ?? 0) * 100}%`, width: `${(bar?.width ?? 0) * 100}%` }}
                    />
                  </span>
                  <span className="small">{durationText(bar?.ms)}</span>
                </summary>
                {node.error ? <p className="error">{node.error}</p> : null}
                <pre tabIndex={0} aria-label={t("output")}>
                  {JSON.stringify(node.output, null, 2)}
                </pre>
              </details>
            </li>
          );
        })}
      </ol>
    </section>
  );
}
