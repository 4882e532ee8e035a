import { expect, test } from "vitest";
import { lastMoment, parsePalette } from "./commands";

const WORDS = { pause: "Pausieren", resume: "Fortsetzen", run: "Jetzt ausführen" };

test("a command has a verb, by its beginning and in the language of the page, and the name of a schedule", () => {
  expect(parsePalette(">pause nightly report", WORDS)).toEqual({ kind: "do", verbs: ["pause"], text: "nightly report" });
  expect(parsePalette("> forts nightly", WORDS)).toEqual({ kind: "do", verbs: ["resume"], text: "nightly" });
  expect(parsePalette(">r", WORDS)).toEqual({ kind: "do", verbs: ["resume", "run"], text: "" });
  expect(parsePalette(">drop tables", WORDS)).toMatchObject({ verbs: [] });
});

test("a question may end with a time", () => {
  expect(parsePalette("?why nightly 02:30", WORDS)).toEqual({ kind: "why", text: "nightly", at: "02:30" });
  expect(parsePalette("? nightly report", WORDS)).toEqual({ kind: "why", text: "nightly report" });
  expect(parsePalette("?why 02:30", WORDS)).toEqual({ kind: "why", text: "02:30" });
  expect(parsePalette("?warum nightly 2026-11-18T02:30:00Z", WORDS)).toMatchObject({ at: "2026-11-18T02:30:00Z" });
  expect(parsePalette("nightly", WORDS)).toEqual({ kind: "find", text: "nightly" });
});

test("a time of the clock is the last one in the zone of the schedule, today or the day before", () => {
  const now = Date.parse("2026-11-18T04:00:30Z");
  expect(lastMoment("02:30", "Europe/Berlin", now)).toBe("2026-11-18T01:30:00.000Z");
  expect(lastMoment("06:00", "Europe/Berlin", now)).toBe("2026-11-17T05:00:00.000Z");
  expect(lastMoment("2026-03-29T02:30:00+01:00", "Europe/Berlin", now)).toBe("2026-03-29T02:30:00+01:00");
});

test("a time that the clocks skipped today is that of the day before", () => {
  const now = Date.parse("2026-03-29T10:00:00Z");
  expect(lastMoment("02:30", "Europe/Berlin", now)).toBe("2026-03-28T01:30:00.000Z");
});
