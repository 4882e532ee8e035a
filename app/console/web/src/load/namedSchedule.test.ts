import { expect, test } from "vitest";
import { idsNamed } from "./namedSchedule";

test("a name is that of all schedules that have exactly it", () => {
  const found = [
    ...["a", "b"].map((id) => ({ type: "schedule", id, name: "nightly" })),
    { type: "schedule", id: "c", name: "nightly report" },
    { type: "workflow", id: 7, name: "nightly" },
  ].map((one) => ({ ...one, status: null, match: null }));
  expect(idsNamed("nightly", found)).toEqual(["a", "b"]);
  expect(idsNamed("unheard of", found)).toEqual([]);
});
