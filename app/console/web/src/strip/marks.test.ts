import { expect, test } from "vitest";
import type { Slot } from "../api/types";
import { entriesOf, fitting, KINDS, kindOf, layoutOf, LETTERS, shareOf } from "./marks";

const slot = (outcome: string, more: Partial<Slot> = {}): Slot => ({ slot: "2026-11-18T00:00:00Z", outcome, ...more });
const SIZE = { cell: 6, gap: 2, height: 20 };

test.each([
  [slot("fired", { status: "success" }), "succeeded"],
  [slot("fired", { status: "success", attempts: 3 }), "retried"],
  [slot("fired", { status: "timed_out" }), "failed"],
  [slot("fired", { status: "running" }), "running"],
  [slot("running"), "running"],
  [slot("queued"), "queued"],
  [slot("skipped_overlap"), "skipped_overlap"],
  [slot("skipped_request"), "skipped_request"],
  [slot("skipped_by_moonlight"), "skipped"],
  [slot("fired", { status: "skipped" }), "skipped"],
  [slot("missed"), "missed"],
  [slot("coalesced"), "coalesced"],
  [slot("expected"), "expected"],
  [slot("teleported"), "other"],
  [slot("fired", { status: "teleported" }), "other"],
])("%o is shown as %s", (given, kind) => {
  expect(kindOf(given)).toBe(kind);
});

test("entries are in the order of time, spans among them", () => {
  const entries = entriesOf({
    items: [slot("missed", { slot: "2026-11-18T03:00:00Z" }), slot("fired", { slot: "2026-11-18T01:00:00Z" })],
    spans: [{ kind: "paused", from: "2026-11-18T02:00:00Z", to: null }],
  });
  expect(entries.map((entry) => entry.slot?.outcome ?? entry.span?.kind)).toEqual(["fired", "paused", "missed"]);
});

test("a range is one wide mark, and now stands before the first expected slot", () => {
  const entries = entriesOf({
    items: [
      slot("missed", { from: "2026-11-17T00:00:00Z", to: "2026-11-17T05:00:00Z", count: 6 }),
      slot("expected", { slot: "2026-11-18T01:00:00Z" }),
    ],
    spans: [],
  });
  const layout = layoutOf(entries, SIZE);
  expect(layout.cells.map((cell) => cell.width)).toEqual([22, 6]);
  expect(layout.nowX).toBe(23);
  expect(layout.width).toBe(30);
});

test("every kind is drawn inside its cell and has a shape of its own", () => {
  const shapes = KINDS.map((kind) => {
    const layout = layoutOf([{ slot: slot("fired"), kind }], SIZE);
    return layout.paths[kind];
  });
  expect(shapes.every(Boolean)).toBe(true);
  expect(new Set(shapes).size).toBe(KINDS.length - 1); // `other` and `succeeded` are full bars, told apart by colour and letter
});

test("every kind has a letter of its own, each kind of skipped slots too", () => {
  expect(new Set(Object.values(LETTERS)).size).toBe(KINDS.length);
});

test("marks of one kind make one path", () => {
  const entries = Array.from({ length: 120 }, () => ({ slot: slot("fired", { status: "success" }), kind: "succeeded" as const }));
  expect(Object.keys(layoutOf(entries, SIZE).paths)).toEqual(["succeeded"]);
});

test("the newest entries are kept where there is little room", () => {
  const entries = ["missed", "expected", "fired"].map((outcome) => ({ slot: slot(outcome), kind: "other" as const }));
  expect(fitting(entries, SIZE, 14).map((entry) => entry.slot?.outcome)).toEqual(["expected", "fired"]);
  expect(fitting(entries, SIZE, 100)).toHaveLength(3);
  expect(fitting(entries, SIZE, 0)).toEqual([]);
});

test("height follows what is measured, within its bounds", () => {
  expect(shareOf(slot("fired", { lateness_ms: 0 }), "lateness")).toBe(0.25);
  expect(shareOf(slot("fired", { lateness_ms: 1e12 }), "lateness")).toBe(1);
  expect(shareOf(slot("fired"), "duration")).toBe(0.25);
  expect(shareOf(slot("fired"), "plain")).toBe(1);
});
