/** Changes to many schedules: look at the plan, confirm, watch, undo. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslations } from "use-intl";
import { bulk } from "../api/client";
import type { Query } from "../api/http";
import type { BulkPlan, BulkRequest, Operation } from "../api/types";
import { OWN_ZONE } from "../preferences";
import { Dialog, Problem, ScopedButton, useAct } from "../ui/controls";
import type { Scope } from "../ui/scopes";

export interface Selection {
  ids: Set<string>;
  /** All that match the filter, also those that are not loaded. */
  all?: boolean;
}

const ACTIONS: [string, "pause" | "resume" | "run" | "revive" | "remove", Scope][] = [
  ["pause", "pause", "operate"],
  ["resume", "resume", "operate"],
  ["run", "run", "operate"],
  ["revive", "revive", "operate"],
  ["delete", "remove", "write"],
];
/** Above this many schedules the number has to be typed. */
const CONFIRM_ABOVE = 100;

export function BulkBar(props: {
  selection: Selection;
  total: number;
  filter: Query;
  onAll: () => void;
  onClear: () => void;
}) {
  const { selection, total, filter } = props;
  const t = useTranslations();
  const [action, setAction] = useState<string | null>(null);
  const request: Omit<BulkRequest, "action"> = selection.all ? { filter: definedOf(filter) } : { ids: [...selection.ids] };
  const count = selection.all ? total : selection.ids.size;
  return (
    <div className="bulk-bar" role="region" aria-label={t("bulk.label")}>
      <strong>{t("bulk.selected", { count })}</strong>
      {selection.all || total <= selection.ids.size ? null : (
        <button type="button" onClick={props.onAll}>
          {t("list.selectAll", { count: total })}
        </button>
      )}
      {ACTIONS.map(([name, text, scope]) => (
        <ScopedButton key={name} needs={scope} className={name === "delete" ? "danger" : ""} onClick={() => setAction(name)}>
          {t(`schedule.${text}`)}
        </ScopedButton>
      ))}
      <button type="button" className="plain" onClick={props.onClear}>
        {t("app.cancel")}
      </button>
      {action ? (
        <BulkDialog
          request={{ ...request, action }}
          title={t(`schedule.${ACTIONS.find(([name]) => name === action)?.[1] ?? "pause"}`)}
          onClose={() => setAction(null)}
        />
      ) : null}
    </div>
  );
}

function definedOf(query: Query): Record<string, unknown> {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined));
}

/** One bulk action from its dry run to its end. */
export function BulkDialog({ request, title, onClose }: { request: BulkRequest; title: string; onClose: () => void }) {
  const t = useTranslations();
  const act = useAct();
  const [note, setNote] = useState("");
  const [until, setUntil] = useState("");
  const [operation, setOperation] = useState<Operation | null>(null);
  const plan = useQuery({ queryKey: ["bulk-plan", request], queryFn: () => bulk.plan(request), retry: false, gcTime: 0 });
  async function start(confirmed: BulkPlan) {
    const started = await act(() =>
      bulk.start({
        ...request,
        note: note || undefined,
        arguments: request.arguments ?? (until ? { until: new Date(until).toISOString() } : undefined),
        expect_count: confirmed.count,
      }),
    );
    if (started) setOperation(started);
  }
  return (
    <Dialog title={title} onClose={onClose}>
      {operation ? (
        <Progress operation={operation} onClose={onClose} />
      ) : (
        <>
          {request.action === "pause" ? (
            <label className="field">
              <span>{t("schedule.until", { zone: OWN_ZONE })}</span>
              <input type="datetime-local" value={until} onChange={(event) => setUntil(event.target.value)} />
            </label>
          ) : null}
          <label className="field">
            <span>{t("app.note")}</span>
            <input value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
          </label>
          {plan.error ? <Problem error={plan.error} /> : null}
          {plan.data ? <PlanView plan={plan.data} onStart={() => void start(plan.data)} onClose={onClose} /> : null}
          {plan.data ? null : (
            <button type="button" onClick={onClose}>
              {t("app.cancel")}
            </button>
          )}
        </>
      )}
    </Dialog>
  );
}

function PlanView({ plan, onStart, onClose }: { plan: BulkPlan; onStart: () => void; onClose: () => void }) {
  const t = useTranslations();
  const [typed, setTyped] = useState("");
  const change = plan.would_change ?? plan.count;
  const confirmed = plan.count <= CONFIRM_ABOVE || typed.trim() === String(plan.count);
  return (
    <>
      <p>
        <strong>{t("bulk.plan", { count: plan.count, change })}</strong>
      </p>
      {plan.skipped.length ? (
        <ul>
          {plan.skipped.map((one) => (
            <li key={one.reason}>
              {t("bulk.skipped")}: {one.count} · {one.reason}
            </li>
          ))}
        </ul>
      ) : null}
      {plan.count > CONFIRM_ABOVE ? (
        <label className="field">
          <span>{t("bulk.type", { count: String(plan.count) })}</span>
          <input inputMode="numeric" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
      ) : null}
      <div className="actions">
        <button type="button" className="primary" disabled={!confirmed || change === 0} onClick={onStart}>
          {t("bulk.start")}
        </button>
        <button type="button" onClick={onClose}>
          {t("app.cancel")}
        </button>
      </div>
    </>
  );
}

const PROGRESS_MS = 700;

export function Progress({ operation, onClose }: { operation: Operation; onClose: () => void }) {
  const t = useTranslations("bulk");
  const act = useAct();
  const client = useQueryClient();
  const [id, setId] = useState(operation.id);
  const query = useQuery({
    queryKey: ["operation", id],
    queryFn: () => bulk.read(id),
    refetchInterval: (one) => (one.state.data?.status === "running" ? PROGRESS_MS : false),
  });
  const now = query.data ?? operation;
  const running = now.status === "running";
  return (
    <>
      <progress max={Math.max(1, now.total)} value={now.done + now.failed} aria-label={t("label")} />
      <p role="status">{t("progress", { done: now.done, total: now.total, failed: now.failed })}</p>
      {now.errors?.length ? (
        <ul className="error">
          {now.errors.slice(0, 20).map((error, index) => (
            <li key={error.id ?? index}>
              <bdi>{error.name ?? error.id}</bdi> {error.message ?? error.error}
            </li>
          ))}
        </ul>
      ) : null}
      <div className="actions">
        {running ? (
          <button type="button" onClick={() => void act(() => bulk.cancel(id))}>
            {t("stop")}
          </button>
        ) : (
          <button
            type="button"
            className="primary"
            onClick={() => {
              void client.invalidateQueries();
              onClose();
            }}
          >
            {t("finish")}
          </button>
        )}
        {!running && now.undoable ? (
          <button
            type="button"
            onClick={() => void act(() => bulk.undo(id), t("undone")).then((undone) => undone && setId(undone.id))}
          >
            {t("undo")}
          </button>
        ) : null}
      </div>
    </>
  );
}
