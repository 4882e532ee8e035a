import { expect, test } from "vitest";
import { changeLines } from "./changes";

test("a change is shown as before and after, and anything else as it came", () => {
  expect(changeLines({ name: { from: "a", to: "b" }, labels: { from: {}, to: { team: "core" } }, nodes: 3, note: { from: "", to: null } })).toEqual([
    { field: "name", before: "a", after: "b" },
    { field: "labels", before: "{}", after: '{"team":"core"}' },
    { field: "nodes", after: "3" },
    { field: "note", before: '""', after: "null" },
  ]);
  expect(changeLines(null)).toEqual([]);
});

test("a long value is cut", () => {
  expect(changeLines({ payload: { from: "", to: "x".repeat(300) } })[0]?.after).toHaveLength(202);
});
