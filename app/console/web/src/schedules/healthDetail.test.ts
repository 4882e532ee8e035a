import { expect, test } from "vitest";
import type { Slots } from "../api/types";
import { failuresOf, pauseOf } from "./healthDetail";

const slots = (...outcomes: [string, string | null][]) =>
  ({ items: outcomes.map(([outcome, status]) => ({ slot: "", outcome, status })), spans: [] }) as Slots;

test("failures are counted from the newest slot to the last success", () => {
  const found = slots(["expected", null], ["fired", "running"], ["fired", "failed"], ["skipped_overlap", null], ["fired", "lost"]);
  expect(failuresOf(found)).toBe(2);
  expect(failuresOf({ ...found, items: [...found.items, ...slots(["fired", "success"], ["fired", "failed"]).items] })).toBe(2);
  expect(failuresOf(slots(["fired", "success"], ["fired", "failed"]))).toBe(0);
  expect(failuresOf(undefined)).toBe(0);
});

test("the pause of a schedule is the newest that has not ended", () => {
  const span = (from: string, to: string | null, by: string) => ({ kind: "paused", from, to, by });
  const spans = [span("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "old"), span("2026-01-03T00:00:00Z", null, "mia")];
  expect(pauseOf({ status: "paused" }, { items: [], spans })?.by).toBe("mia");
  expect(pauseOf({ status: "active" }, { items: [], spans })).toBeUndefined();
  expect(pauseOf({ status: "paused" }, undefined)).toBeUndefined();
});
