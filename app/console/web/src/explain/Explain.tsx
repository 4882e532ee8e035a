/** Why a schedule did or did not run at a time: the sentence, the checks as a ladder, and what can be done. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Check, CircleDashed, CircleX } from "lucide-react";
import { useEffect, useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { breakers, schedules } from "../api/client";
import type { Explanation, Schedule, ScheduleThen } from "../api/types";
import { ChangeList } from "../audit/Events";
import { Badge, Loaded, Name, ScopedButton, Sentence, Time, useAct, useCopy } from "../ui/controls";
import { Backfill } from "../schedules/Backfill";
import { gapAround } from "../strip/gap";
import { useSlots } from "../strip/useSlots";
import { decidingCheck, isHeldByBreaker } from "./ladder";
import "./explain.css";

export function Explain({ schedule, at, onAt }: { schedule: Schedule; at?: string; onAt: (at?: string) => void }) {
  const t = useTranslations("explain");
  const [typed, setTyped] = useState(at ?? "");
  useEffect(() => setTyped(at ?? ""), [at]);
  const query = useQuery({
    queryKey: ["explain", schedule.id, at],
    queryFn: () => schedules.explain(schedule.id, at),
    retry: false,
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    onAt(typed.trim() || undefined);
  }
  return (
    <section className="stack" aria-label={t("title")}>
      <form className="row" onSubmit={submit}>
        <label className="row">
          <span>{t("at")}</span>
          <input
            value={typed}
            placeholder="2026-03-29T02:30:00+01:00"
            onChange={(event) => setTyped(event.target.value)}
            size={28}
          />
        </label>
        <button type="submit">{t("ask")}</button>
      </form>
      <Loaded query={query}>{(found) => <Answer schedule={schedule} found={found} onAt={onAt} />}</Loaded>
    </section>
  );
}

function Answer({ schedule, found, onAt }: { schedule: Schedule; found: Explanation; onAt: (at?: string) => void }) {
  const t = useTranslations("explain");
  const marks = useTranslations("mark");
  const deciding = decidingCheck(found.checks);
  const title = marks.has(found.outcome as never) ? marks(found.outcome as never) : found.outcome;
  return (
    <div className="stack">
      <div>
        <p className="sentence" aria-live="polite">
          <Sentence zone={schedule.timezone}>{found.sentence}</Sentence>
        </p>
        <p className="soft small">
          <code>{title}</code> · <Time at={found.slot} zone={schedule.timezone} />
        </p>
      </div>
      <ol className="ladder" aria-label={t("checks")}>
        {found.checks.map((check, index) => {
          const state = index === deciding ? "failed" : check.passed ? "passed" : "notReached";
          const Icon = state === "failed" ? CircleX : state === "passed" ? Check : CircleDashed;
          return (
            <li key={check.check} className={state}>
              <details open={state === "failed"}>
                <summary>
                  <Icon size={16} aria-hidden="true" />
                  <strong>{check.check.replaceAll("_", " ")}</strong>
                  <span className="small">{t(state)}</span>
                </summary>
                <p>
                  <Sentence zone={schedule.timezone}>{check.detail}</Sentence>
                </p>
              </details>
            </li>
          );
        })}
      </ol>
      {found.then ? <AsItWas then={found.then} zone={schedule.timezone} /> : null}
      <Remedies schedule={schedule} found={found} onAt={onAt} />
    </div>
  );
}

/** The schedule at the time of the slot: who made it so, and what is different now. */
function AsItWas({ then, zone }: { then: ScheduleThen; zone: string }) {
  const t = useTranslations("explain");
  const isSame = Object.keys(then.changes).length === 0;
  return (
    <details className="then" open={!isSame}>
      <summary>{isSame ? t("thenSame") : t("then")}</summary>
      <dl className="facts">
        <dt>{t("wasDue")}</dt>
        <dd>
          <Sentence zone={then.timezone}>{then.spec_description}</Sentence> <span className="soft">({then.timezone})</span>{" "}
          <Badge word={then.status} kind="status" />
        </dd>
        <dt>{t("thenSince")}</dt>
        <dd>
          <Time at={then.since} zone={zone} /> · <Name>{then.by}</Name>
          {then.note ? (
            <>
              {" "}
              <q>
                <Name>{then.note}</Name>
              </q>
            </>
          ) : null}
        </dd>
        {isSame ? null : (
          <>
            <dt>{t("sinceThen")}</dt>
            <dd>
              <ChangeList changes={then.changes} />
            </dd>
          </>
        )}
      </dl>
    </details>
  );
}

function Remedies({ schedule, found, onAt }: { schedule: Schedule; found: Explanation; onAt: (at?: string) => void }) {
  const t = useTranslations();
  const act = useAct();
  const copy = useCopy();
  const client = useQueryClient();
  const { gap, isToCome } = useSurroundings(schedule, found);
  const [backfilled, setBackfilled] = useState<{ from: string; to: string } | null>(null);
  const slot = found.slot ?? undefined;
  const change = (work: () => Promise<unknown>, done: string) =>
    void act(work, done).then(() => client.invalidateQueries());
  return (
    <div className="actions">
      {found.execution_id ? (
        <Link className="button" to="/runs/$id" params={{ id: found.execution_id }}>
          {t("explain.openRun")}
        </Link>
      ) : null}
      {schedule.status === "paused" ? (
        <ScopedButton needs="operate" onClick={() => change(() => schedules.resume(schedule.id), t("schedule.resumed"))}>
          {t("schedule.resume")}
        </ScopedButton>
      ) : null}
      {isHeldByBreaker(found) ? <BreakerReset workflowId={schedule.workflow_id} onReset={() => onAt(slot)} /> : null}
      {gap && gap.count > 1 ? (
        <ScopedButton needs="operate" onClick={() => setBackfilled(gap)}>
          {t("explain.gap", { count: gap.count })}
        </ScopedButton>
      ) : null}
      {gap && slot ? (
        <ScopedButton needs="operate" onClick={() => setBackfilled({ from: slot, to: slot })}>
          {t("explain.runSlot")}
        </ScopedButton>
      ) : null}
      {isToCome && slot && found.outcome === "expected" ? (
        <ScopedButton
          needs="operate"
          onClick={() => change(() => schedules.skip(schedule.id, { slots: [slot] }), t("skip.done", { count: 1 }))}
        >
          {t("skip.this")}
        </ScopedButton>
      ) : null}
      {isToCome && slot && found.outcome === "skipped_request" ? (
        <ScopedButton needs="operate" onClick={() => change(() => schedules.unskip(schedule.id, slot), t("skip.undone"))}>
          {t("skip.undo")}
        </ScopedButton>
      ) : null}
      <button
        type="button"
        className="plain"
        onClick={() => void copy(location.href)}
      >
        {t("explain.link")}
      </button>
      {backfilled ? <Backfill schedule={schedule} {...backfilled} onClose={() => setBackfilled(null)} /> : null}
    </div>
  );
}

/** The gap that the slot lies in, if it did not run, and whether it is still to come. */
function useSurroundings(schedule: Schedule, found: Explanation) {
  const slots = useSlots(schedule.id);
  const now = Date.now();
  if (!found.slot) return { gap: null, isToCome: false };
  const known = gapAround(slots.data?.items ?? [], found.slot, now);
  const isToCome = Date.parse(found.slot) > now;
  // An older slot than those of the strip is a gap by itself.
  const alone = !isToCome && /^(missed|skipped)/.test(found.outcome) ? { from: found.slot, to: found.slot, count: 1 } : null;
  return { gap: found.outcome === "fired" ? null : (known ?? alone), isToCome };
}

/** The button that closes the breaker, while it is not closed. The slot stays the one that is explained. */
function BreakerReset({ workflowId, onReset }: { workflowId: number; onReset: () => void }) {
  const t = useTranslations("explain");
  const act = useAct();
  const client = useQueryClient();
  const breaker = useQuery({ queryKey: ["breaker", workflowId], queryFn: () => breakers.read(workflowId), retry: false });
  if (!breaker.data || breaker.data.state === "closed") return null;
  async function reset() {
    const done = await act(() => breakers.reset(workflowId), t("resetDone"));
    if (done) onReset();
    await client.invalidateQueries();
  }
  return (
    <ScopedButton needs="operate" className="primary" onClick={() => void reset()}>
      {t("reset")}
    </ScopedButton>
  );
}
