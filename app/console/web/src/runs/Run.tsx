/** One run: its state, the steps on an axis of time, what went in and what came out. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { executions, workflows } from "../api/client";
import { ApiError } from "../api/http";
import type { ExecutionDetail } from "../api/types";
import { Missing } from "../shell/Shell";
import { Badge, Loading, Name, Problem, ScopedButton, Time, toneOf, useAct, useCopy, useNow } from "../ui/controls";
import { Json } from "../ui/Json";
import { durationText } from "../ui/time";
import { curlOf, curlOfRequest } from "./curl";
import { useScheduleNames } from "./useScheduleNames";
import { attemptsOf, barsOf, type Bar } from "./waterfall";
import "./run.css";

const route = getRouteApi("/runs/$id");
const ENDED = new Set(["success", "failed", "timed_out", "lost", "cancelled", "skipped", "blocked"]);
const REFRESH_MS = 1000;
const HTTP_REQUEST = "core.http_request";

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
      <Attempts run={run} />
      <Steps run={run} />
      <section className="card stack">
        <h2>{t("payload")}</h2>
        <Json value={run.payload} label={t("payload")} />
      </section>
    </div>
  );
}

function RunActions({ run }: { run: ExecutionDetail }) {
  const t = useTranslations("runs");
  const act = useAct();
  const client = useQueryClient();
  const navigate = useNavigate();
  const copy = useCopy();
  const call = `${location.origin}/api/v1/executions/${run.id}/`;
  return (
    <div className="actions">
      <button type="button" className="plain" onClick={() => void copy(run.scheduled_job_id ? curlOf("POST", `${call}again/`) : curlOf("GET", call))}>
        {t("curl")}
      </button>
      {run.trace_url ? (
        <a className="button" href={run.trace_url} target="_blank" rel="noreferrer">
          {t("trace")}
        </a>
      ) : null}
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

const LOOKED_AT = 100;

/** The attempts at the same slot, with the time that each waited after the one before. */
function Attempts({ run }: { run: ExecutionDetail }) {
  const t = useTranslations("runs");
  const now = useNow(ENDED.has(run.status) ? null : 1000);
  const query = useQuery({
    queryKey: ["attempts", run.scheduled_job_id, run.scheduled_for, run.status],
    queryFn: () => executions.list({ scheduled_job_id: run.scheduled_job_id, limit: LOOKED_AT }),
    enabled: run.scheduled_job_id !== null && run.trigger !== "manual",
    retry: false,
  });
  const attempts = attemptsOf(run, query.data?.items ?? []);
  const bars = barsOf(attempts, now);
  if (attempts.length === 0) return null;
  return (
    <section className="card stack" aria-label={t("attempts")}>
      <h2>{t("attempts")}</h2>
      <ol className="waterfall">
        {attempts.map((attempt, index) => (
          <li key={attempt.run.id} className="attempt">
            <span className="step">
              <Link
                to="/runs/$id"
                params={{ id: attempt.run.id }}
                aria-current={attempt.run.id === run.id ? "page" : undefined}
                activeProps={{}}
              >
                {t("attempt")} {attempt.run.retry_attempt + 1}
              </Link>{" "}
              {attempt.waitedMs === null ? null : (
                <span className="soft small">{t("after", { time: durationText(attempt.waitedMs) })}</span>
              )}
            </span>
            <Badge word={attempt.run.status} kind="status" />
            <Track bar={bars[index]} status={attempt.run.status} />
            <span className="small">{durationText(bars[index]?.ms)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Track({ bar, status }: { bar: Bar | undefined; status: string }) {
  return (
    <span className="track" aria-hidden="true">
      <span
        className={`tone-${toneOf(status)}`}
        style={{ left: `${(bar?.left ?? 0) * 100}%`, width: `${(bar?.width ?? 0) * 100}%` }}
      />
    </span>
  );
}

/** The calls of the steps as commands, as the workflow has them now; templates stay as they are written. */
function useRequests({ workflow_id, nodes }: ExecutionDetail): Record<string, string> {
  const calls = nodes.some((node) => node.type === HTTP_REQUEST);
  const query = useQuery({
    queryKey: ["workflow", workflow_id],
    queryFn: () => workflows.read(workflow_id ?? 0),
    enabled: calls && workflow_id !== null,
    retry: false,
  });
  const found = query.data?.value.nodes.filter((node) => node.type === HTTP_REQUEST) ?? [];
  return Object.fromEntries(found.map((node) => [node.id, curlOfRequest(node.config)]));
}

function Steps({ run }: { run: ExecutionDetail }) {
  const t = useTranslations("runs");
  const now = useNow(ENDED.has(run.status) ? null : 1000);
  const bars = barsOf(run.nodes, now);
  const requests = useRequests(run);
  const copy = useCopy();
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
                  <Track bar={bar} status={node.status} />
                  <span className="small">{durationText(bar?.ms)}</span>
                </summary>
                {node.error ? <p className="error">{node.error}</p> : null}
                <Json value={node.output} label={t("output")} />
                {requests[node.node_id] ? (
                  <p className="row">
                    <button type="button" onClick={() => void copy(requests[node.node_id] ?? "")}>
                      {t("curlOfCall")}
                    </button>
                    <span className="soft small">{t("curlText")}</span>
                  </p>
                ) : null}
              </details>
            </li>
          );
        })}
      </ol>
    </section>
  );
}
