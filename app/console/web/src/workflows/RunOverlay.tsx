import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { useTranslations } from "use-intl";
import { executions } from "../api/client";
import type { ExecutionDetail } from "../api/types";
import { Badge, Problem, Time, useNow, useZone } from "../ui/controls";
import { Json } from "../ui/Json";
import { durationText, instantText } from "../ui/time";
import type { Graph } from "./graph";
import { missingSteps, statesOf, type StepState } from "./overlay";

const SHOWN_RUNS = 20;
const RUNS_MS = 5000;
const RUN_MS = 1000;
const UNDER_WAY = new Set(["pending", "running"]);

/** The run that is laid over the canvas, read again until it has ended. */
export function useOverlay(graph: Graph, id: string | undefined) {
  const query = useQuery({
    queryKey: ["run", id],
    queryFn: () => executions.read(id ?? ""),
    enabled: id !== undefined,
    refetchInterval: (one) => (one.state.data && UNDER_WAY.has(one.state.data.status) ? RUN_MS : false),
  });
  const run = id === undefined ? undefined : query.data;
  const now = useNow(run && UNDER_WAY.has(run.status) ? RUN_MS : null);
  const states = useMemo(() => (run ? statesOf(graph, run, now) : undefined), [graph, run, now]);
  return { run, states, error: id === undefined ? null : query.error };
}

/** Chooses the run, and says what became of it. */
export function RunChooser(props: { workflow: number; graph: Graph; run: ExecutionDetail | undefined; id?: string; error: unknown }) {
  const { workflow, run, id } = props;
  const t = useTranslations("workflows");
  const status = useTranslations("status");
  const zone = useZone();
  const navigate = useNavigate();
  const query = useQuery({
    queryKey: ["workflow-runs", workflow],
    queryFn: () => executions.list({ workflow_id: workflow, limit: SHOWN_RUNS }),
    refetchInterval: RUNS_MS,
  });
  const runs = query.data?.items ?? [];
  const word = (text: string) => (status.has(text as never) ? status(text as never) : text);
  const show = (run: string) =>
    void navigate({ to: "/workflows/$id", params: { id: String(workflow) }, search: { run: run || undefined } });
  const gone = run ? missingSteps(props.graph, run) : [];
  return (
    <div className="row run-chooser">
      <label className="row">
        {t("overlay")}
        <select value={id ?? ""} onChange={(event) => show(event.target.value)}>
          <option value="">{t("noOverlay")}</option>
          {id && runs.every((one) => one.id !== id) ? <option value={id}>{id}</option> : null}
          {runs.map((one) => (
            <option key={one.id} value={one.id}>
              {instantText(one.scheduled_for, zone)} · {word(one.status)}
            </option>
          ))}
        </select>
      </label>
      {run ? (
        <>
          <Badge word={run.status} kind="status" />
          <span className="soft small">{durationText(run.duration_ms)}</span>
          <Link to="/runs/$id" params={{ id: run.id }}>
            {t("openRun")}
          </Link>
        </>
      ) : null}
      {gone.length ? <span className="tone-warn small">{t("stepsGone", { steps: gone.join(", ") })}</span> : null}
      {props.error ? <Problem error={props.error} /> : null}
    </div>
  );
}

/** What a run says of the picked step. */
export function StepResult({ id, state }: { id: string; state: StepState | undefined }) {
  const t = useTranslations();
  const result = state?.result;
  return (
    <section className="card stack workflow-form" aria-label={t("workflows.result", { id })}>
      <div className="row">
        <h2>
          <bdi>{id}</bdi>
        </h2>
        {state ? <Badge word={state.status} kind="status" /> : null}
        <span className="soft small">{state?.ms === null || !state ? "" : durationText(state.ms)}</span>
      </div>
      {result ? (
        <>
          <p className="soft small">
            <Time at={result.started_at} />
          </p>
          {result.error ? <p className="note bad">{result.error}</p> : null}
          <h3>{t("runs.output")}</h3>
          <Json value={result.output} label={t("runs.output")} />
        </>
      ) : (
        <p className="soft">{t(state?.status === "success" ? "workflows.began" : "workflows.notReached")}</p>
      )}
    </section>
  );
}
