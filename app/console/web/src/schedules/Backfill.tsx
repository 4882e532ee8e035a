/** Running slots of the past: a dry run first, then the operation. */

import { useState } from "react";
import { useTranslations } from "use-intl";
import { schedules } from "../api/client";
import type { BackfillPlan, Operation, Schedule } from "../api/types";
import { OWN_ZONE } from "../preferences";
import { Dialog, ScopedButton, Time, useAct } from "../ui/controls";
import { Progress } from "./BulkBar";
import { inputOf } from "./until";

const SHOWN = 10;

export function Backfill(props: { schedule: Schedule; from?: string; to?: string; onClose: () => void }) {
  const { schedule, onClose } = props;
  const t = useTranslations("backfill");
  const act = useAct();
  const [from, setFrom] = useState(inputOf(props.from));
  const [to, setTo] = useState(inputOf(props.to));
  const [onlyNotFired, setOnly] = useState(true);
  const [plan, setPlan] = useState<BackfillPlan | null>(null);
  const [operation, setOperation] = useState<Operation | null>(null);
  const body = () => ({
    from: new Date(from).toISOString(),
    to: new Date(to).toISOString(),
    only: onlyNotFired ? "not_fired" : "all",
  });
  if (operation)
    return (
      <Dialog title={t("title", { name: schedule.name })} onClose={onClose}>
        <Progress operation={operation} onClose={onClose} />
      </Dialog>
    );
  return (
    <Dialog title={t("title", { name: schedule.name })} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void act(() => schedules.backfillPlan(schedule.id, body())).then((found) => setPlan(found ?? null));
        }}
      >
        <label className="field">
          <span>
            {t("from")} ({OWN_ZONE})
          </span>
          <input required type="datetime-local" value={from} onChange={(event) => setFrom(event.target.value)} />
        </label>
        <label className="field">
          <span>
            {t("to")} ({OWN_ZONE})
          </span>
          <input required type="datetime-local" value={to} onChange={(event) => setTo(event.target.value)} />
        </label>
        <label className="row">
          <input type="checkbox" checked={onlyNotFired} onChange={(event) => setOnly(event.target.checked)} />
          {t("only")}
        </label>
        {plan ? (
          <div className="note">
            <strong>{t("count", { count: plan.count, seconds: plan.estimate_seconds })}</strong>
            <ul>
              {plan.slots.slice(0, SHOWN).map((one) => (
                <li key={one.slot}>
                  <Time at={one.slot} zone={schedule.timezone} /> · {t("had")} {one.outcome}
                </li>
              ))}
            </ul>
          </div>
        ) : null}
        <div className="actions">
          <button type="submit" className={plan ? "" : "primary"}>
            {t("dry")}
          </button>
          {plan && plan.count > 0 ? (
            <ScopedButton
              needs="operate"
              className="primary"
              onClick={() =>
                void act(() => schedules.backfill(schedule.id, body()), t("started")).then(
                  (started) => started && setOperation(started),
                )
              }
            >
              {t("start")}
            </ScopedButton>
          ) : null}
        </div>
      </form>
    </Dialog>
  );
}
