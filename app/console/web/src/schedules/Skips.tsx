/** Slots to come that are left out: the next ones, and what was left out and can be taken back. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { schedules } from "../api/client";
import type { Schedule } from "../api/types";
import { plannedSkips } from "../strip/gap";
import { Dialog, Loaded, Name, ScopedButton, Time, useAct, useToast } from "../ui/controls";

const AHEAD = 50;

export function Skips({ schedule, onClose }: { schedule: Schedule; onClose: () => void }) {
  const t = useTranslations();
  const act = useAct();
  const toast = useToast();
  const client = useQueryClient();
  const [count, setCount] = useState("1");
  const [note, setNote] = useState("");
  const query = useQuery({
    queryKey: ["slots", schedule.id, "ahead"],
    queryFn: () => schedules.slots(schedule.id, { limit: 1, ahead: AHEAD }),
    retry: false,
  });
  async function change(work: () => Promise<unknown>, done: string) {
    await act(work, done);
    await client.invalidateQueries();
  }
  async function submit(event: FormEvent) {
    event.preventDefault();
    const answer = await act(() => schedules.skip(schedule.id, { next: Number(count), note }));
    if (answer) toast(t("skip.done", { count: answer.skipped.length }));
    await client.invalidateQueries();
  }
  return (
    <Dialog title={t("skip.title", { name: schedule.name })} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <p className="soft">{t("skip.text")}</p>
        <div className="fields">
          <label className="field">
            <span>{t("skip.next")}</span>
            <input required type="number" min={1} max={1000} value={count} onChange={(event) => setCount(event.target.value)} />
          </label>
          <label className="field">
            <span>{t("app.note")}</span>
            <input value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
          </label>
        </div>
        <div className="actions">
          <ScopedButton needs="operate" type="submit" className="primary">
            {t("skip.button")}
          </ScopedButton>
          <button type="button" onClick={onClose}>
            {t("app.close")}
          </button>
        </div>
      </form>
      <Loaded query={query}>
        {(slots) => {
          const skipped = plannedSkips(slots.items, Date.now());
          if (skipped.length === 0) return <p className="soft">{t("skip.none", { count: AHEAD })}</p>;
          return (
            <section className="stack" aria-label={t("skip.planned")}>
              <h3>{t("skip.planned")}</h3>
              <ul className="plain-list tight">
                {skipped.map((one) => (
                  <li key={one.slot} className="row">
                    <Time at={one.slot} zone={schedule.timezone} />
                    <span className="grow soft small">
                      <Name>{one.reason ?? ""}</Name>
                    </span>
                    <ScopedButton
                      needs="operate"
                      onClick={() => void change(() => schedules.unskip(schedule.id, one.slot), t("skip.undone"))}
                    >
                      {t("skip.undo")}
                    </ScopedButton>
                  </li>
                ))}
              </ul>
              {skipped.length > 1 ? (
                <div className="actions">
                  <ScopedButton
                    needs="operate"
                    onClick={() => void change(() => schedules.unskip(schedule.id), t("skip.undone"))}
                  >
                    {t("skip.undoAll")}
                  </ScopedButton>
                </div>
              ) : null}
            </section>
          );
        }}
      </Loaded>
    </Dialog>
  );
}
