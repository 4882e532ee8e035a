import { expect, test } from "vitest";
import type { Schedule } from "../api/types";
import { decidingCheck } from "../explain/ladder";
import { bodyOf, changesOf, creationOf, EMPTY, formOf, payloadOf, specOf } from "./form";

const stored = {
  name: "nightly",
  description: "",
  workflow_id: 7,
  cron: "30 2 * * *",
  every: null,
  interval_seconds: null,
  at: null,
  timezone: "Europe/Berlin",
  jitter_seconds: 0,
  only_between: null,
  not_on: ["sat", "sun"],
  start_at: null,
  end_at: null,
  total_repeats: 0,
  max_retries: 3,
  timeout_seconds: 600,
  if_running: "skip",
  catch_up: "skip",
  trigger_payload: { a: 1 },
} as unknown as Schedule;

test("an untouched form changes nothing", () => {
  expect(changesOf(formOf(stored), stored)).toEqual({});
});

test("only what differs is sent", () => {
  expect(changesOf({ ...formOf(stored), spec: "0 3 * * *", max_retries: "5" }, stored)).toEqual({
    cron: "0 3 * * *",
    max_retries: 5,
  });
});

test("another kind of spec is sent under its own name", () => {
  expect(changesOf({ ...formOf(stored), kind: "every", spec: "15m" }, stored)).toEqual({ every: "15m" });
});

test("an interval in seconds becomes a duration", () => {
  const form = formOf({ ...stored, cron: null, interval_seconds: 300 } as Schedule);
  expect([form.kind, form.spec]).toEqual(["every", "300s"]);
});

test("the spec has names of days as a list, and null for empty fields", () => {
  const spec = specOf({ ...EMPTY, not_on: "sat,  sun" });
  expect(spec).toMatchObject({ cron: "30 2 * * *", not_on: ["sat", "sun"], only_between: null });
});

test("labels are written as pairs, and left out of a new schedule that has none", () => {
  const form = { ...EMPTY, labels: "team=core, expr=a=b" };
  expect(creationOf(form).labels).toEqual({ team: "core", expr: "a=b" });
  expect(creationOf(EMPTY)).not.toHaveProperty("labels");
  expect(formOf({ ...stored, labels: { team: "core" } }).labels).toBe("team=core");
});

test("a limit is taken away by an empty field, and left out of a new schedule that has none", () => {
  const limited = { ...stored, limit: "crm" };
  expect(changesOf({ ...formOf(limited), limit: " " }, limited)).toEqual({ limit: null });
  expect(creationOf(EMPTY)).not.toHaveProperty("limit");
  expect(creationOf({ ...EMPTY, limit: "crm" }).limit).toBe("crm");
});

test("what is no number is left to the server to refuse", () => {
  expect(bodyOf({ ...EMPTY, max_retries: "many" }).max_retries).toBe("many");
});

test("a payload is an object or nothing", () => {
  expect(payloadOf({ ...EMPTY, payload: '{"a": 1}' })).toEqual({ a: 1 });
  expect(payloadOf({ ...EMPTY, payload: "[1]" })).toBeNull();
  expect(payloadOf({ ...EMPTY, payload: "{" })).toBeNull();
});

test("the first check that did not pass decides", () => {
  const check = (passed: boolean) => ({ check: "", passed, detail: "" });
  expect(decidingCheck([check(true), check(false), check(false)])).toBe(1);
  expect(decidingCheck([check(true)])).toBe(-1);
});
