/** What a change of a cron expression, or a new schedule, would do to the load. */

import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { fleet, workflows } from "../api/client";

export type Change = { id: string; set: object } | { draft: object };

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function WhatIf({ changes, onChange }: { changes: Change[]; onChange: (changes: Change[]) => void }) {
  const t = useTranslations("load");
  const [typed, setTyped] = useState("");
  const [cron, setCron] = useState("*/5 * * * *");
  const [unknown, setUnknown] = useState(false);
  const found = useFound(typed);
  const workflow = useQuery({ queryKey: ["workflow-names"], queryFn: () => workflows.list({ limit: 200 }) });
  function submit(event: FormEvent) {
    event.preventDefault();
    const name = typed.trim();
    const id = ID.test(name) ? name : found.find((one) => one.name === name)?.id;
    setUnknown(name !== "" && id === undefined);
    if (name && id === undefined) return;
    const draft = { name: "draft", workflow_id: workflow.data?.items[0]?.id ?? 1, cron };
    onChange([...changes, id === undefined ? { draft } : { id: String(id), set: { cron } }]);
  }
  return (
    <section className="card stack" aria-label={t("whatIf")}>
      <h2>{t("whatIf")}</h2>
      <p className="soft">{t("whatIfText")}</p>
      <form className="stack" onSubmit={submit}>
        <label className="field">
          <span>{t("scheduleId")}</span>
          <input list="what-if-schedules" value={typed} onChange={(event) => setTyped(event.target.value)} />
          {unknown ? (
            <span className="error small" role="alert">
              {t("unknown")}
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
          {changes.length ? (
            <button type="button" onClick={() => onChange([])}>
              {t("reset")}
            </button>
          ) : null}
        </div>
      </form>
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
