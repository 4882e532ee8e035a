/** The form of a schedule: what the fields hold, and the body that they make. */

import type { Schedule } from "../api/types";

export const KINDS = ["cron", "every", "at", "rrule"] as const;
export type Kind = (typeof KINDS)[number];

export interface Form {
  name: string;
  description: string;
  workflow_id: string;
  kind: Kind;
  spec: string;
  timezone: string;
  jitter_seconds: string;
  only_between: string;
  not_on: string;
  exclude_calendars: string;
  only_calendars: string;
  start_at: string;
  end_at: string;
  total_repeats: string;
  max_retries: string;
  timeout_seconds: string;
  if_running: string;
  catch_up: string;
  payload: string;
  labels: string;
  limit: string;
}

export const EMPTY: Form = {
  name: "",
  description: "",
  workflow_id: "",
  kind: "cron",
  spec: "30 2 * * *",
  timezone: "UTC",
  jitter_seconds: "0",
  only_between: "",
  not_on: "",
  exclude_calendars: "",
  only_calendars: "",
  start_at: "",
  end_at: "",
  total_repeats: "0",
  max_retries: "3",
  timeout_seconds: "600",
  if_running: "skip",
  catch_up: "skip",
  payload: "{}",
  labels: "",
  limit: "",
};

export function formOf(schedule: Schedule): Form {
  const kind: Kind = schedule.cron ? "cron" : schedule.at ? "at" : schedule.rrule ? "rrule" : "every";
  const every = schedule.every ?? (schedule.interval_seconds === null ? "" : `${schedule.interval_seconds}s`);
  return {
    name: schedule.name,
    description: schedule.description,
    workflow_id: String(schedule.workflow_id),
    kind,
    spec: { cron: schedule.cron, at: schedule.at, rrule: schedule.rrule, every }[kind] ?? "",
    timezone: schedule.timezone,
    jitter_seconds: String(schedule.jitter_seconds),
    only_between: schedule.only_between ?? "",
    not_on: schedule.not_on.join(", "),
    exclude_calendars: (schedule.exclude_calendars ?? []).join(", "),
    only_calendars: (schedule.only_calendars ?? []).join(", "),
    start_at: schedule.start_at ?? "",
    end_at: schedule.end_at ?? "",
    total_repeats: String(schedule.total_repeats),
    max_retries: String(schedule.max_retries),
    timeout_seconds: String(schedule.timeout_seconds),
    if_running: schedule.if_running,
    catch_up: schedule.catch_up,
    payload: JSON.stringify(schedule.trigger_payload ?? {}, null, 2),
    labels: Object.entries(schedule.labels ?? {})
      .map(([name, value]) => `${name}=${value}`)
      .join(", "),
    limit: schedule.limit ?? "",
  };
}

/** A number as it was typed; what is no number is sent as text, so that the server names the field in its error. */
const numberOf = (text: string): number | string => (/^-?\d+$/.test(text.trim()) ? Number(text) : text);
const orNull = (text: string): string | null => text.trim() || null;

/** Reads names with commas between them. */
const namesOf = (text: string): string[] =>
  text
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);

/** Returns the fields that say when; the preview takes these alone. */
export function specOf(form: Form): Record<string, unknown> {
  return {
    [form.kind]: form.spec.trim(),
    timezone: form.timezone.trim(),
    jitter_seconds: numberOf(form.jitter_seconds),
    only_between: orNull(form.only_between),
    not_on: form.not_on.split(/[\s,]+/).filter(Boolean),
    exclude_calendars: namesOf(form.exclude_calendars),
    only_calendars: namesOf(form.only_calendars),
    start_at: orNull(form.start_at),
    end_at: orNull(form.end_at),
  };
}

export function payloadOf(form: Form): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(form.payload || "{}");
    return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** Returns all fields that the form has. */
export function bodyOf(form: Form): Record<string, unknown> {
  return {
    name: form.name,
    description: form.description,
    workflow_id: numberOf(form.workflow_id),
    ...specOf(form),
    total_repeats: numberOf(form.total_repeats),
    max_retries: numberOf(form.max_retries),
    timeout_seconds: numberOf(form.timeout_seconds),
    if_running: form.if_running,
    catch_up: form.catch_up,
    trigger_payload: payloadOf(form) ?? {},
    labels: labelsOf(form.labels),
    limit: orNull(form.limit),
  };
}

/** Reads labels as they are written in the form: `team=core, env=prod`. */
function labelsOf(text: string): Record<string, string> {
  const pairs = text.split(",").map((part) => part.trim()).filter(Boolean);
  return Object.fromEntries(
    pairs.map((pair) => {
      const [name = "", ...value] = pair.split("=");
      return [name.trim(), value.join("=").trim()];
    }),
  );
}

/** Returns the body of a POST without empty labels and limit: a server that does not know them refuses the fields. */
export function creationOf(form: Form): Record<string, unknown> {
  const { labels, limit, ...others } = bodyOf(form);
  return { ...others, ...(form.labels.trim() ? { labels } : {}), ...(limit ? { limit } : {}) };
}

/** Returns the fields of a body that differ from what is stored: the body of a PATCH. */
export function changesOf(form: Form, stored: Schedule): Record<string, unknown> {
  const before = bodyOf(formOf(stored));
  const after = bodyOf(form);
  return Object.fromEntries(
    Object.entries(after).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])),
  );
}
