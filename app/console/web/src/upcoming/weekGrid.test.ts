import { expect, test } from "vitest";
import type { Forecast } from "../api/types";
import { closedIn, isWithin, shadeOf, spanOf, weekOf } from "./weekGrid";

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

test("a span goes from the earlier hour to the later one, over days too", () => {
  const evening = { from: "2026-12-24T18:00:00.000Z", to: "2026-12-24T19:00:00.000Z" };
  const morning = { from: "2026-12-25T05:00:00.000Z", to: "2026-12-25T06:00:00.000Z" };
  const span = spanOf(morning, evening);
  expect(span).toEqual({ from: evening.from, to: morning.to });
  const night = { from: "2026-12-25T00:00:00Z", to: "2026-12-25T01:00:00Z" };
  const noon = { from: "2026-12-25T12:00:00Z", to: "2026-12-25T13:00:00Z" };
  expect([night, evening, morning, noon].map((cell) => isWithin(cell, span))).toEqual([true, true, true, false]);
  expect(isWithin(night, undefined)).toBe(false);
});

test("an hour is closed by the entries that cover a part of it", () => {
  const closed = [
    { from: "2026-12-24T23:00:00Z", to: "2026-12-26T23:00:00Z", calendar: "holidays", entry: "Christmas Day" },
    { from: "2026-12-25T10:30:00Z", to: "2026-12-25T11:00:00Z", calendar: "works", entry: "move" },
  ];
  const hour = (from: string, to: string) => closedIn({ from: `2026-12-${from}:00:00.000Z`, to: `2026-12-${to}:00:00.000Z` }, closed);
  expect(hour("24T22", "24T23")).toEqual([]);
  expect(hour("25T10", "25T11")).toEqual(["holidays: Christmas Day", "works: move"]);
  expect(hour("26T23", "27T00")).toEqual([]);
});
