/** Running slots of the past: a dry run first, then the operation. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useTranslations } from "use-intl";
import { schedules } from "../api/client";
import type { BackfillPlan, Instant, Operation, Schedule } from "../api/types";
import { OWN_ZONE } from "../preferences";
import { Dialog, Problem, ScopedButton, Time, useAct } from "../ui/controls";
import { durationText } from "../ui/time";
import { Progress } from "./BulkBar";
import { inputOf, instantOf } from "./until";

const SHOWN = 10;

interface Request {
  from?: Instant;
  to?: Instant;
  only: "not_fired" | "all";
  max_concurrent: number;
}

/** The dialog of a backfill. With `from` and `to` its dry run is shown at once. */
export function Backfill(props: { schedule: Schedule; from?: Instant; to?: Instant; onClose: () => void }) {
  const { schedule, onClose } = props;
  const t = useTranslations("backfill");
  const app = useTranslations("app");
  const act = useAct();
  const from = useMoment(props.from);
  const to = useMoment(props.to);
  const [onlyNotFired, setOnly] = useState(true);
  const [atOnce, setAtOnce] = useState("1");
  const [note, setNote] = useState("");
  const request: Request = {
    from: from.instant,
    to: to.instant,
    only: onlyNotFired ? "not_fired" : "all",
    max_concurrent: Number(atOnce),
  };
  const [asked, setAsked] = useState<Request | null>(props.from && props.to ? request : null);
  const [operation, setOperation] = useState<Operation | null>(null);
  const plan = useQuery({
    queryKey: ["backfill-plan", schedule.id, asked],
    queryFn: () => schedules.backfillPlan(schedule.id, asked ?? {}),
    enabled: asked !== null,
    retry: false,
    gcTime: 0,
  });
  // A plan of other times than those in the fields is not started.
  const isPlanned = JSON.stringify(asked) === JSON.stringify(request);
  const start = () => act(() => schedules.backfill(schedule.id, { ...request, note }), t("started"));
  return (
    <Dialog title={t("title", { name: schedule.name })} onClose={onClose}>
      {operation ? (
        <Progress operation={operation} onClose={onClose} />
      ) : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            setAsked(request);
          }}
        >
          <div className="fields">
            <TimeField label={`${t("from")} (${OWN_ZONE})`} moment={from} />
            <TimeField label={`${t("to")} (${OWN_ZONE})`} moment={to} />
            <label className="field">
              <span>{t("atOnce")}</span>
              <input required type="number" min={1} max={100} value={atOnce} onChange={(event) => setAtOnce(event.target.value)} />
            </label>
          </div>
          <label className="row">
            <input type="checkbox" checked={onlyNotFired} onChange={(event) => setOnly(event.target.checked)} />
            {t("only")}
          </label>
          <label className="field">
            <span>{app("note")}</span>
            <input value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
          </label>
          {asked && plan.error ? <Problem error={plan.error} /> : null}
          {isPlanned && plan.data ? <PlanText plan={plan.data} zone={schedule.timezone} /> : null}
          <div className="actions">
            <button type="submit" className={isPlanned ? "" : "primary"}>
              {t("dry")}
            </button>
            {isPlanned && plan.data && plan.data.count > 0 ? (
              <ScopedButton
                needs="operate"
                className="primary"
                onClick={() => void start().then((started) => started && setOperation(started))}
              >
                {t("start")}
              </ScopedButton>
            ) : null}
            <button type="button" onClick={onClose}>
              {app("cancel")}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

interface Moment {
  text: string;
  instant: Instant | undefined;
  set: (text: string) => void;
}

/** A time of a field, which has whole seconds; the one that it was opened with stays exact until it is changed. */
function useMoment(given: Instant | undefined): Moment {
  const first = inputOf(given, true);
  const [text, set] = useState(first);
  return { text, set, instant: given && text === first ? given : instantOf(text) };
}

function TimeField({ label, moment }: { label: string; moment: Moment }) {
  return (
    <label className="field">
      <span>{label}</span>
      <input
        required
        type="datetime-local"
        step={1}
        value={moment.text}
        onChange={(event) => moment.set(event.target.value)}
      />
    </label>
  );
}

function PlanText({ plan, zone }: { plan: BackfillPlan; zone: string }) {
  const t = useTranslations("backfill");
  const more = plan.count - Math.min(SHOWN, plan.slots.length);
  return (
    <div className="note" role="status">
      <strong>{t("count", { count: plan.count, time: durationText(plan.estimate_seconds * 1000) })}</strong>
      <ul className="small">
        {plan.slots.slice(0, SHOWN).map((one) => (
          <li key={one.slot}>
            <Time at={one.slot} zone={zone} /> · {t("had")} <code>{one.outcome}</code>
          </li>
        ))}
        {more > 0 ? <li>{t("more", { count: more })}</li> : null}
      </ul>
    </div>
  );
}
