import { expect, test } from "vitest";
import { bucketsAbove, capacityOf } from "./capacity";

const step = (at: string, count: number, p99_ms: number | null) => ({ at, count, p50_ms: 1, p99_ms });

test("the capacity is the fullest step in which runs started in time", () => {
  expect(capacityOf([step("a", 100, 20), step("b", 900, 60_000), step("c", 400, 900)])).toEqual({ at: "c", runs: 400 });
  expect(capacityOf([step("a", 0, null), step("b", 900, 60_000)])).toBeNull();
});

test("buckets above it are those with more fires", () => {
  const buckets = [4, 5, 6].map((fires) => ({ at: String(fires), fires, busy_seconds: 0 }));
  expect(bucketsAbove(buckets, { at: "a", runs: 5 })).toBe(1);
});
