/** The audit log: who did what to what, by which way. */

import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { Events } from "./Events";

const route = getRouteApi("/audit");
const WAYS = ["console", "api", "cli", "mcp", "file", "plugin", "engine"];
const OBJECTS = [
  "schedule",
  "workflow",
  "execution",
  "operation",
  "calendar",
  "limit",
  "lease",
  "settings",
  "user",
  "team",
  "token",
  "session",
  "secret",
  "webhook",
  "notification",
];
const DAYS = [1, 7, 30];
const DAY_MS = 86_400_000;
const FIELDS = ["actor", "via", "object_type", "action", "object_id", "days"] as const;

export default function Audit() {
  const t = useTranslations();
  const search = route.useSearch();
  const navigate = useNavigate();
  const filter = useMemo(() => {
    const { days, ...others } = search;
    return { ...others, from: days ? new Date(Date.now() - Number(days) * DAY_MS).toISOString() : undefined };
  }, [search]);
  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const data = new FormData(event.currentTarget);
    const given = FIELDS.map((name) => [name, String(data.get(name) ?? "").trim() || undefined]);
    void navigate({ to: "/audit", search: Object.fromEntries(given) });
  }
  const choice = (name: "via" | "object_type", values: string[]) => (
    <label className="field">
      <span>{t(`audit.${name === "via" ? "via" : "object"}`)}</span>
      <select name={name} defaultValue={search[name] ?? ""} onChange={(event) => event.currentTarget.form?.requestSubmit()}>
        <option value="">{t("audit.any")}</option>
        {[...new Set([...values, ...(search[name] ? [search[name]] : [])])].map((value) => (
          <option key={value}>{value}</option>
        ))}
      </select>
    </label>
  );
  const text = (name: "actor" | "action" | "object_id", label: string) => (
    <label className="field">
      <span>{label}</span>
      <input name={name} defaultValue={search[name]} />
    </label>
  );
  const isFiltered = Object.values(search).some(Boolean);
  return (
    <div className="page">
      <h1>{t("audit.title")}</h1>
      <form className="card fields filters" onSubmit={submit} key={JSON.stringify(search)}>
        {text("actor", t("audit.actor"))}
        {choice("via", WAYS)}
        {choice("object_type", OBJECTS)}
        {text("object_id", t("audit.objectId"))}
        {text("action", t("audit.action"))}
        <label className="field">
          <span>{t("audit.since")}</span>
          <select name="days" defaultValue={search.days ?? ""} onChange={(event) => event.currentTarget.form?.requestSubmit()}>
            <option value="">{t("audit.ever")}</option>
            {DAYS.map((days) => (
              <option key={days} value={days}>
                {t("audit.days", { count: days })}
              </option>
            ))}
          </select>
        </label>
        <div className="actions">
          <button type="submit" className="primary">
            {t("audit.filter")}
          </button>
          {isFiltered ? (
            <button type="button" onClick={() => void navigate({ to: "/audit" })}>
              {t("list.clear")}
            </button>
          ) : null}
        </div>
      </form>
      <div className="card">
        <Events filter={filter} withObject />
      </div>
    </div>
  );
}
