import { expect, test } from "vitest";
import { clockText, distanceText, durationText, instantText, readable, zoneFor } from "./time";

test("an instant is written in its zone, and the zone is named", () => {
  expect(instantText("2026-03-29T01:30:00Z", "Europe/Berlin")).toBe("2026-03-29 03:30 Europe/Berlin");
  expect(instantText("2026-03-29T01:30:05Z", "UTC")).toBe("2026-03-29 01:30:05 UTC");
  expect(clockText("2026-03-29T00:05:00Z", "UTC")).toBe("00:05");
});

test("what is no instant is shown as it came", () => {
  expect(instantText("soon", "UTC")).toBe("soon");
});

test("instants in a sentence are written like all others", () => {
  const sentence = "The slot 2026-03-29T01:30:00.500000Z did not fire: paused until 2026-03-30T06:00:00+02:00 (by mia).";
  expect(readable(sentence, "Europe/Berlin")).toBe(
    "The slot 2026-03-29 03:30 Europe/Berlin did not fire: paused until 2026-03-30 06:00 Europe/Berlin (by mia).",
  );
  expect(readable("every day at 02:30 Europe/Berlin, from 2026-03-29", "UTC")).toBe(
    "every day at 02:30 Europe/Berlin, from 2026-03-29",
  );
});

test("the zone of a schedule is used only where there is one", () => {
  expect(zoneFor("schedule", "Asia/Tokyo", "Europe/Berlin")).toBe("Europe/Berlin");
  expect(zoneFor("schedule", "Asia/Tokyo")).toBe("UTC");
  expect(zoneFor("mine", "Asia/Tokyo", "Europe/Berlin")).toBe("Asia/Tokyo");
});

test("distances and durations use the largest unit that fits", () => {
  const now = Date.parse("2026-11-18T00:00:00Z");
  expect(distanceText("2026-11-18T00:05:30Z", now, "en")).toBe("in 5 min.");
  expect(distanceText("2026-11-17T22:00:00Z", now, "en")).toBe("2 hr. ago");
  expect([340, 2400, 185_000, 7_500_000].map(durationText)).toEqual(["340 ms", "2.4 s", "3 min 5 s", "2 h 5 min"]);
  expect(durationText(null)).toBe("–");
});
