import { expect, test } from "vitest";
import type { Forecast } from "../api/types";
import { busiest, firesAt, heatRows, shadesOf } from "./heat";

const bucket = (at: string, fires: number) => ({ at, fires, busy_seconds: 0 });
const buckets = [
  bucket("2026-11-18T00:00:00Z", 100),
  bucket("2026-11-18T00:30:00Z", 12.5),
  bucket("2026-11-18T01:00:00Z", 0),
];

test("an hour is a row, and the peak is the hottest", () => {
  const rows = heatRows(buckets);
  expect(rows.map((row) => row.cells.map((cell) => cell.heat))).toEqual([[1, 0.5], [0]]);
});

test("no buckets are no rows", () => {
  expect(heatRows([])).toEqual([]);
});

test("the busiest times come first, and empty ones are left out", () => {
  expect(busiest(buckets, 5).map((one) => one.fires)).toEqual([100, 12.5]);
  expect(busiest(buckets, 1)).toHaveLength(1);
});

test("a bucket that is not there has no fires", () => {
  expect(firesAt({ buckets } as Forecast, "2026-11-18T05:00:00Z")).toBe(0);
});

test("the buckets of a group are one path for each shade, and empty ones are left out", () => {
  expect(shadesOf([0, 1, 1000, 125], 1000)).toEqual(["M1 0h1v1h-1z", "M3 0h1v1h-1z", "", "M2 0h1v1h-1z"]);
});
