import { expect, test } from "vitest";
import { bucketsAbove, capacityOf, isTooMany } from "./capacity";

const step = (at: string, count: number, p99_ms: number | null) => ({ at, count, p50_ms: 1, p99_ms });

test("the capacity is the fullest step in which runs started in time, and what was late above it", () => {
  const steps = [step("a", 100, 20), step("b", 900, 60_000), step("c", 400, 900), step("d", 700, 20_000)];
  expect(capacityOf(steps)).toEqual({ at: "c", runs: 400, lateFrom: 700 });
  expect(capacityOf([step("a", 100, 20), step("restart", 3, 60_000)])).toEqual({ at: "a", runs: 100, lateFrom: null });
  expect(capacityOf([step("a", 0, null), step("b", 900, 60_000)])).toBeNull();
});

test("more than ever ran is not too many; as many as were late is", () => {
  const buckets = [4, 5, 6].map((fires) => ({ at: String(fires), fires, busy_seconds: 0 }));
  const capacity = { at: "a", runs: 5, lateFrom: 8 };
  expect(bucketsAbove(buckets, capacity)).toBe(1);
  expect([7, 8].map((fires) => isTooMany(fires, capacity))).toEqual([false, true]);
  expect(isTooMany(8, { ...capacity, lateFrom: null })).toBe(false);
});
