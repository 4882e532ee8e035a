import { expect, test } from "vitest";
import type { Upcoming } from "../api/types";
import { daysOf } from "./agenda";

const fire = (at: string, schedule_id = "a") => ({ at, schedule_id }) as Upcoming;

test("a day is that of the zone in which times are shown", () => {
  const items = [fire("2026-11-18T22:00:00Z"), fire("2026-11-18T23:30:00Z")];
  expect(daysOf(items, "UTC").map((day) => [day.day, day.rows.length])).toEqual([["2026-11-18", 2]]);
  expect(daysOf(items, "Europe/Berlin").map((day) => day.day)).toEqual(["2026-11-18", "2026-11-19"]);
});

test("what fires often in a minute is one row", () => {
  const often = [0, 1, 2].flatMap((second) => ["a", "b"].map((id) => fire(`2026-11-18T22:00:0${second}Z`, id)));
  const [day] = daysOf([...often, fire("2026-11-18T22:01:00Z")], "UTC");
  expect(day?.rows.map(({ clock, item, items }) => [clock, item.schedule_id, items.length])).toEqual([
    ["22:00", "a", 3],
    ["22:00", "b", 3],
    ["22:01", "a", 1],
  ]);
});
