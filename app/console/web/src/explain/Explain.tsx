/** Why a schedule did or did not run at a time: the sentence, the checks as a ladder, and what can be done. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Check, CircleDashed, CircleX } from "lucide-react";
import { useEffect, useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { breakers, schedules } from "../api/client";
import type { Explanation, Schedule } from "../api/types";
import { Loaded, ScopedButton, Time, useAct, useToast } from "../ui/controls";
import { Backfill } from "../schedules/Backfill";
import { decidingCheck } from "./ladder";
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
      <Loaded query={query}>{(found) => <Answer schedule={schedule} found={found} />}</Loaded>
    </section>
  );
}

function Answer({ schedule, found }: { schedule: Schedule; found: Explanation }) {
  const t = useTranslations("explain");
  const marks = useTranslations("mark");
  const deciding = decidingCheck(found.checks);
  const title = marks.has(found.outcome as never) ? marks(found.outcome as never) : found.outcome;
  return (
    <div className="stack">
      <div>
        <p className="sentence" aria-live="polite">
          {found.sentence}
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
                  <strong>{check.check}</strong>
                  <span className="small">{t(state)}</span>
                </summary>
                <p>{check.detail}</p>
              </details>
            </li>
          );
        })}
      </ol>
      <Remedies schedule={schedule} found={found} />
    </div>
  );
}

function Remedies({ schedule, found }: { schedule: Schedule; found: Explanation }) {
  const t = useTranslations();
  const act = useAct();
  const toast = useToast();
  const client = useQueryClient();
  const [backfilling, setBackfilling] = useState(false);
  const change = (work: () => Promise<unknown>, done: string) =>
    void act(work, done).then(() => client.invalidateQueries());
  const didNotFire = /^(missed|skipped|coalesced)/.test(found.outcome);
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
      {found.outcome === "skipped_breaker" ? (
        <ScopedButton
          needs="operate"
          onClick={() => change(() => breakers.reset(schedule.workflow_id), t("explain.resetDone"))}
        >
          {t("explain.reset")}
        </ScopedButton>
      ) : null}
      {didNotFire && found.slot ? (
        <ScopedButton needs="operate" onClick={() => setBackfilling(true)}>
          {t("explain.gap")}
        </ScopedButton>
      ) : null}
      <button
        type="button"
        className="plain"
        onClick={() => void navigator.clipboard.writeText(location.href).then(() => toast(t("app.copied")))}
      >
        {t("explain.link")}
      </button>
      {backfilling && found.slot ? (
        <Backfill schedule={schedule} from={found.slot} to={found.slot} onClose={() => setBackfilling(false)} />
      ) : null}
    </div>
  );
}
