/** What a change of a cron expression, or a new schedule, would do to the load. */

import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useDeferredValue, useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { fleet, workflows } from "../api/client";
import { Name, useAct } from "../ui/controls";
import { ID, idsNamed } from "./namedSchedule";

export type Change = { id: string; set: object } | { draft: object };

/** A change that is tried, and how it is named in the list of them. */
export interface Tried {
  change: Change;
  name: string;
  cron: string;
}

export function WhatIf({ tried, onChange }: { tried: Tried[]; onChange: (tried: Tried[]) => void }) {
  const t = useTranslations("load");
  const [typed, setTyped] = useState("");
  const [cron, setCron] = useState("*/5 * * * *");
  const [refusal, setRefusal] = useState<"unknown" | "several" | null>(null);
  const act = useAct();
  const found = useFound(typed);
  const workflow = useQuery({ queryKey: ["workflow-names"], queryFn: () => workflows.list({ limit: 200 }) });
  async function submit(event: FormEvent) {
    event.preventDefault();
    setRefusal(null);
    const name = typed.trim();
    const draft = { name: "draft", workflow_id: workflow.data?.items[0]?.id ?? 1, cron };
    const add = (change: Change) => onChange([...tried, { change, name: name || t("draft"), cron }]);
    if (!name) return add({ draft });
    // Not what was offered while typing: that may be of an earlier text.
    const ids = ID.test(name) ? [name] : await act(async () => idsNamed(name, (await fleet.search(name)).items));
    const [id, other] = ids ?? [];
    if (ids && (!id || other)) setRefusal(id ? "several" : "unknown");
    else if (id) add({ id, set: { cron } });
  }
  return (
    <section className="card stack" aria-label={t("whatIf")}>
      <h2>{t("whatIf")}</h2>
      <p className="soft">{t("whatIfText")}</p>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <label className="field">
          <span>{t("scheduleId")}</span>
          <input list="what-if-schedules" value={typed} onChange={(event) => setTyped(event.target.value)} />
          {refusal ? (
            <span className="error small" role="alert">
              {t(refusal)}
            </span>
          ) : null}
        </label>
        <datalist id="what-if-schedules">
          {found.map((one) => (
            <option key={one.id} value={one.name} />
          ))}
        </datalist>
        <label className="field">
          <span>{t("cron")}</span>
          <input className="mono" required value={cron} onChange={(event) => setCron(event.target.value)} />
        </label>
        <div className="actions">
          <button type="submit">{t("try")}</button>
          {tried.length ? (
            <button type="button" onClick={() => onChange([])}>
              {t("reset")}
            </button>
          ) : null}
        </div>
      </form>
      {tried.length ? (
        <ul className="plain-list tight" aria-label={t("tried")}>
          {tried.map((one, index) => (
            <li key={index} className="row">
              <span className="grow clamped">
                <Name>{one.name}</Name> → <code>{one.cron}</code>
              </span>
              <button
                type="button"
                className="plain"
                aria-label={t("untry", { name: one.name })}
                onClick={() => onChange(tried.filter((other) => other !== one))}
              >
                <X size={14} aria-hidden="true" />
              </button>
            </li>
          ))}
        </ul>
      ) : null}
    </section>
  );
}

/** Schedules whose names have what is typed. */
function useFound(typed: string) {
  const wanted = useDeferredValue(typed.trim());
  const query = useQuery({
    queryKey: ["palette-schedules", wanted],
    queryFn: () => fleet.search(wanted),
    enabled: wanted.length > 1 && !ID.test(wanted),
    retry: false,
    placeholderData: (before) => before,
  });
  return query.data?.items.filter((one) => one.type === "schedule") ?? [];
}
