import { expect, test } from "vitest";
import type { Schedule } from "../api/types";
import { isTurn, movedIds, newerCount, withRows, type Pulse } from "./pulse";

const pulse = (second: number, version = "a"): Pulse => ({
  at: new Date(Date.UTC(2026, 10, 18, 0, 0, second)).toISOString(),
  due: 0,
  oldest_overdue_seconds: 0,
  running: 0,
  workers: 1,
  mode: "bell",
  schedules_enabled: true,
  open_breakers: 0,
  outcomes: {},
  p50_ms: null,
  p99_ms: null,
  version,
});
const row = (id: string, next: string | null, outcome: string | null = "fired") =>
  ({ id, name: id, next_run_at: next, last_outcome: outcome }) as Schedule;
const ROWS = [
  row("due", "2026-11-18T00:00:05Z"),
  row("later", "2026-11-18T00:01:00Z"),
  row("running", null, "running"),
  row("idle", null, null),
];

test("only rows that are due or running are asked for, until something was changed", () => {
  expect(movedIds(ROWS, pulse(5), pulse(3))).toEqual(["due", "running"]);
  expect(movedIds(ROWS, pulse(4), pulse(3))).toEqual(["running"]);
  expect(movedIds(ROWS, pulse(4), null)).toHaveLength(4);
  expect(movedIds(ROWS, pulse(4, "b"), pulse(3))).toEqual(["due", "later", "running", "idle"]);
});

test("a pulse is acted on at most every two seconds", () => {
  expect(isTurn(pulse(1), null)).toBe(true);
  expect([isTurn(pulse(2), pulse(1)), isTurn(pulse(3), pulse(1))]).toEqual([false, true]);
});

test("fresh values keep the order of the rows, and what is gone is marked", () => {
  const after = withRows(ROWS, ["later", "due"], [{ ...row("later", null), name: "renamed" }]);
  expect(after.map((one) => one.name)).toEqual(["due", "renamed", "running", "idle"]);
  expect(after.map((one) => one.status)).toEqual(["deleted", undefined, undefined, undefined]);
});

test("rows before the first known one are newer", () => {
  expect(newerCount(["x", "y", "a", "z"], new Set(["a", "b"]))).toBe(2);
  expect(newerCount(["x"], new Set(["a"]))).toBe(1);
});
