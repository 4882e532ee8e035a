import { expect, test } from "vitest";
import { inputOf, instantOf, nextHour } from "./until";

test("the next six o'clock is today's or tomorrow's, and the field shows it", () => {
  const night = new Date(2026, 10, 18, 3, 30).getTime();
  const noon = new Date(2026, 10, 18, 12, 0).getTime();
  expect(inputOf(nextHour(6, night))).toBe("2026-11-18T06:00");
  expect(inputOf(nextHour(6, noon))).toBe("2026-11-19T06:00");
  expect(inputOf(nextHour(6, nextHour(6, night)))).toBe("2026-11-19T06:00");
});

test("a field is an instant again", () => {
  const instant = new Date(2026, 10, 18, 6, 0).toISOString();
  expect(instantOf(inputOf(instant))).toBe(instant);
  expect([instantOf(""), inputOf(undefined)]).toEqual([undefined, ""]);
});
