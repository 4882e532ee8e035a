import { expect, test } from "vitest";
import type { Execution } from "../api/types";
import { attemptsOf, barsOf } from "./waterfall";

const timed = (started_at: string, finished_at: string | null) => ({ started_at, finished_at });

test("steps share one axis, and a running step ends now", () => {
  const bars = barsOf(
    [timed("2026-11-18T00:00:00Z", "2026-11-18T00:00:05Z"), timed("2026-11-18T00:00:05Z", null)],
    Date.parse("2026-11-18T00:00:10Z"),
  );
  expect(bars).toEqual([
    { left: 0, width: 0.5, ms: 5000 },
    { left: 0.5, width: 0.5, ms: null },
  ]);
});

test("a step that took no time can still be seen", () => {
  const [bar] = barsOf([timed("2026-11-18T00:00:00Z", "2026-11-18T00:00:00Z")], 0);
  expect(bar?.width).toBeGreaterThan(0);
});

const run = (id: string, second: number, more: Partial<Execution> = {}) =>
  ({
    id,
    scheduled_for: "2026-11-18T00:00:00Z",
    started_at: `2026-11-18T00:00:0${second}Z`,
    finished_at: `2026-11-18T00:00:0${second + 1}Z`,
    trigger: "schedule",
    ...more,
  }) as Execution;

test("attempts at the slot are in their order, with the time that each waited", () => {
  const others = [run("last", 6), run("first", 0), run("other slot", 0, { scheduled_for: "2026-11-17T00:00:00Z" })];
  const found = attemptsOf(run("middle", 2), [...others, run("by hand", 4, { trigger: "manual" })]);
  expect(found.map((attempt) => [attempt.run.id, attempt.waitedMs])).toEqual([["first", null], ["middle", 1000], ["last", 3000]]);
  expect(attemptsOf(run("only", 0), [run("by hand", 4, { trigger: "manual" })])).toEqual([]);
});
