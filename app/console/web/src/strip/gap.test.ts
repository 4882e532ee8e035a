import { expect, test } from "vitest";
import type { Slot } from "../api/types";
import { gapAround, plannedSkips } from "./gap";

const at = (minute: number) => `2026-11-18T03:${String(minute).padStart(2, "0")}:00Z`;
const NOW = Date.parse(at(30));
const slots: Slot[] = [
  { slot: at(40), outcome: "skipped_request" },
  { slot: at(20), outcome: "fired", status: "success" },
  { slot: at(15), outcome: "skipped_request" },
  { slot: at(10), outcome: "skipped_breaker" },
  { slot: at(9), outcome: "missed", from: at(5), to: at(9), count: 5 },
  { slot: at(4), outcome: "coalesced" },
];

test("a gap reaches from the first to the last neighbour that did not run, ranges included", () => {
  const gap = { from: at(5), to: at(10), count: 6 };
  expect(gapAround(slots, at(10), NOW)).toEqual(gap);
  expect(gapAround(slots, at(7), NOW)).toEqual(gap);
});

test("slots that people left out are a gap of their own; what ran, was coalesced or is to come is none", () => {
  expect(gapAround(slots, at(15), NOW)).toEqual({ from: at(15), to: at(15), count: 1 });
  for (const minute of [4, 20, 40, 25]) expect(gapAround(slots, at(minute), NOW)).toBeNull();
});

test("only slots to come can be taken back", () => {
  expect(plannedSkips(slots, NOW).map(({ slot }) => slot)).toEqual([at(40)]);
});
