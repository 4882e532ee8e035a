/** Changes to many schedules: look at the plan, confirm, watch, undo. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useTranslations } from "use-intl";
import { bulk } from "../api/client";
import type { Query } from "../api/http";
import type { BulkPlan, BulkRequest, Operation } from "../api/types";
import { Badge, Dialog, DialogFoot, Loaded, Name, Problem, ScopedButton, Time, useAct } from "../ui/controls";
import type { Scope } from "../ui/scopes";
import { bodyFilterOf } from "./search";
import { instantOf } from "./until";
import { UntilField } from "./UntilField";

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
  const request: Omit<BulkRequest, "action"> = selection.all ? { filter: bodyFilterOf(filter) } : { ids: [...selection.ids] };
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
        arguments: request.arguments ?? (until ? { until: instantOf(until) } : undefined),
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
          {request.action === "pause" && !request.arguments ? (
            <UntilField value={until} onChange={setUntil} />
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
      <ul className="row plain-list" aria-label={t("bulk.byStatus")}>
        {Object.entries(plan.by_status).map(([status, count]) => (
          <li key={status}>
            <Badge word={status} kind="status" /> {count}
          </li>
        ))}
      </ul>
      <SkippedList skipped={plan.skipped} />
      {plan.count > CONFIRM_ABOVE ? (
        <label className="field">
          <span>{t("bulk.type", { count: String(plan.count) })}</span>
          <input inputMode="numeric" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
      ) : null}
      <DialogFoot label={t("bulk.start")} disabled={!confirmed || change === 0} onDo={onStart} onClose={onClose} />
    </>
  );
}

/** Why schedules are left alone, and how many of them. A reason that this page does not know is shown as it came. */
function SkippedList({ skipped }: { skipped: BulkPlan["skipped"] }) {
  const t = useTranslations("bulk");
  const reasons = useTranslations("skipReason");
  if (skipped.length === 0) return null;
  return (
    <ul className="soft">
      {skipped.map(({ reason, count }) => (
        <li key={reason}>
          {t("skipped", { count })}: {reasons.has(reason as never) ? reasons(reason as never) : reason.replaceAll("_", " ")}
        </li>
      ))}
    </ul>
  );
}

/** Schedules that an operation has left alone, and those at which it has failed. */
export function WhatWasNotDone({ operation }: { operation: Pick<Operation, "skipped_reasons" | "error" | "errors"> }) {
  return (
    <>
      <SkippedList skipped={operation.skipped_reasons} />
      {operation.error ? <p className="error">{operation.error}</p> : null}
      {operation.errors.length ? (
        <ul className="error">
          {operation.errors.slice(0, 20).map((error) => (
            <li key={error.schedule_id}>
              <code>{error.schedule_id}</code> {error.message}
            </li>
          ))}
        </ul>
      ) : null}
    </>
  );
}

const PROGRESS_MS = 700;
const UNDER_WAY = new Set(["running", "paused"]);

/** An operation from its start to its end, with its undo. */
export function Progress({ operation, onClose }: { operation: Operation; onClose: () => void }) {
  const t = useTranslations("bulk");
  const act = useAct();
  const client = useQueryClient();
  const [id, setId] = useState(operation.id);
  const query = useQuery({
    queryKey: ["operation", id],
    queryFn: () => bulk.read(id),
    refetchInterval: (one) => (!one.state.data || UNDER_WAY.has(one.state.data.status) ? PROGRESS_MS : false),
  });
  const now = query.data ?? operation;
  const isUnderWay = UNDER_WAY.has(now.status);
  const isUndo = now.action === "undo";
  useEffect(() => {
    if (!isUnderWay) void client.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== "operation" });
  }, [isUnderWay, client]);
  return (
    <>
      <progress max={Math.max(1, now.total)} value={now.done + now.skipped + now.failed} aria-label={t("label")} />
      <p role="status">
        <strong>{isUnderWay ? t("underWay") : t(isUndo ? "undoEnded" : "ended", { status: now.status })}</strong>{" "}
        {t("progress", { done: now.done, total: now.total, failed: now.failed })}
      </p>
      <WhatWasNotDone operation={now} />
      <div className="actions">
        {isUnderWay ? (
          <ScopedButton needs="operate" onClick={() => void act(() => bulk.cancel(id))}>
            {t("stop")}
          </ScopedButton>
        ) : (
          <button type="button" className="primary" onClick={onClose}>
            {t("finish")}
          </button>
        )}
        {!isUnderWay && now.undoable ? (
          <ScopedButton
            needs="operate"
            onClick={() => void act(() => bulk.undo(id), t("undone")).then((undone) => undone && setId(undone.id))}
          >
            {t("undo")}
          </ScopedButton>
        ) : null}
      </div>
    </>
  );
}

/** The operations of late, to look at one again or to undo it. */
export function OperationsDialog({ onClose }: { onClose: () => void }) {
  const t = useTranslations("bulk");
  const [opened, setOpened] = useState<Operation | null>(null);
  const query = useQuery({ queryKey: ["operations"], queryFn: bulk.list, retry: false, gcTime: 0 });
  return (
    <Dialog title={t("operations")} onClose={onClose}>
      {opened ? (
        <Progress operation={opened} onClose={onClose} />
      ) : (
        <Loaded query={query}>
          {(page) =>
            page.items.length ? (
              <ul className="plain-list tight">
                {page.items.map((one) => (
                  <li key={one.id} className="operation">
                    <button type="button" onClick={() => setOpened(one)}>
                      {one.action} · {t("progress", { done: one.done, total: one.total, failed: one.failed })}
                    </button>
                    <span className="soft small">
                      <Name>{one.by}</Name> · <Time at={one.created_at} relative /> {one.note ? <Name>{`“${one.note}”`}</Name> : null}
                    </span>
                  </li>
                ))}
              </ul>
            ) : (
              <p className="soft">{t("noOperations")}</p>
            )
          }
        </Loaded>
      )}
    </Dialog>
  );
}
