import { expect, test } from "vitest";
import type { Upcoming } from "../api/types";
import { daysOf } from "./agenda";

test("a day is that of the zone in which times are shown", () => {
  const items = [{ at: "2026-11-18T22:00:00Z" }, { at: "2026-11-18T23:30:00Z" }] as Upcoming[];
  expect(daysOf(items, "UTC").map((day) => [day.day, day.items.length])).toEqual([["2026-11-18", 2]]);
  expect(daysOf(items, "Europe/Berlin").map((day) => day.day)).toEqual(["2026-11-18", "2026-11-19"]);
});
