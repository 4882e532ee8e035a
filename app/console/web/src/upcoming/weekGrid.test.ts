import { expect, test } from "vitest";
import type { Forecast } from "../api/types";
import { shadeOf, weekOf } from "./weekGrid";

/** A forecast from a time on, with these fires of two schedules in each quarter of an hour. */
function forecast(from: string, fires: number[]): Forecast {
  const buckets = fires.map((count, index) => ({
    at: new Date(Date.parse(from) + index * 900_000).toISOString(),
    fires: count,
    busy_seconds: 0,
  }));
  const group = (name: string, total: number) => ({ key: name, name, fires: total, busy_seconds: 0, buckets: fires });
  return { buckets, groups: [group("heartbeat", 9000), group("nightly", 7)] } as unknown as Forecast;
}

test("quarters of an hour are added up by day and hour of the zone", () => {
  const found = weekOf(forecast("2026-11-18T22:30:00.000Z", [1, 0, 2, 0, 0, 3]), "UTC");
  expect(found.map(({ day, hours }) => [day, [...hours].map(([hour, cell]) => [hour, cell.fires])])).toEqual([
    ["2026-11-18", [[22, 1], [23, 5]]],
  ]);
  expect(weekOf(forecast("2026-11-18T22:30:00.000Z", [1, 0, 2]), "Europe/Berlin").map(({ day }) => day)).toEqual([
    "2026-11-18",
    "2026-11-19",
  ]);
});

test("a zone with another quarter than full hours has its own hours, and a cell says its span and schedules", () => {
  const [day] = weekOf(forecast("2026-11-18T18:15:00.000Z", [1, 1, 1, 1, 7]), "Asia/Kathmandu");
  expect(day?.hours.get(0)).toEqual({
    from: "2026-11-18T18:15:00.000Z",
    to: "2026-11-18T19:15:00.000Z",
    fires: 4,
    names: ["nightly", "heartbeat"],
  });
});

test("the clock change in autumn has both of its hours in one cell", () => {
  const [day] = weekOf(forecast("2026-10-25T00:00:00.000Z", [1, 0, 0, 0, 2, 0, 0, 0, 9]), "Europe/Berlin");
  expect(day?.hours.get(2)?.fires).toBe(3);
  expect(day?.hours.get(3)?.fires).toBe(9);
});

test("the busiest hour is the darkest", () => {
  const cell = { from: "", to: "", fires: 8, names: [] };
  expect([shadeOf(cell, 8), shadeOf(cell, 64), shadeOf(undefined, 8)]).toEqual([1, 0.5, 0]);
});
