import { expect, test } from "vitest";
import { barsOf, countsOf, decades, lineOf, logY, roundUp, stepAt, totalsOf, type Frame } from "./series";

const at = (minute: number) => new Date(Date.UTC(2026, 10, 18, 0, minute)).toISOString();
const FRAME: Frame = { from: Date.parse(at(0)), to: Date.parse(at(10)), stepMs: 60_000, width: 100, height: 50 };

test("outcomes are counted by the kinds of the strips; unknown ones are other", () => {
  expect(countsOf({ success: 5, failed: 1, timed_out: 2, skipped_overlap: 3, missed: 4, brand_new: 6 })).toEqual({
    succeeded: 5,
    failed: 3,
    skipped: 3,
    missed: 4,
    other: 6,
  });
  expect(totalsOf([{ at: at(0), outcomes: { success: 1 } }, { at: at(1), outcomes: { success: 2 } }])).toEqual({ succeeded: 3 });
});

test("the axis ends at a round number", () => {
  expect([0, 1, 3, 7, 11, 120, 999].map(roundUp)).toEqual([1, 1, 5, 10, 20, 200, 1000]);
});

test("bars are stacked from the bottom, failures above successes", () => {
  const { paths, most } = barsOf([{ at: at(1), outcomes: { success: 10, failed: 5 } }], FRAME);
  expect(most).toBe(20);
  expect(paths).toEqual({ succeeded: "M10 25h9v25h-9z", failed: "M10 12.5h9v12.5h-9z" });
});

test("lateness is drawn on a log axis, and a minute without runs breaks the line", () => {
  expect([1, 10, 100, 1000, 99_999].map((ms) => logY(ms, 1000, 30))).toEqual([30, 20, 10, 0, 0]);
  const steps = [0, 1, 3].map((minute) => ({ at: at(minute), count: 1, p50_ms: 10, p99_ms: 120 }));
  expect(decades(steps)).toEqual([1, 10, 100, 1000]);
  expect(lineOf(steps, "p50_ms", { ...FRAME, height: 30 }, 1000)).toBe("M5 20h0.1L15 20M35 20h0.1");
});

test("a place of the chart belongs to the step that covers it", () => {
  const steps = [{ at: at(0) }, { at: at(3) }];
  expect([stepAt(steps, 5, FRAME), stepAt(steps, 15, FRAME), stepAt(steps, 35, FRAME)]).toEqual([0, -1, 1]);
});
