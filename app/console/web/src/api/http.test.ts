import { expect, test } from "vitest";
import { isUnknownPath } from "./http";

test("a path that the server does not have is not an object that it does not have", () => {
  expect(isUnknownPath(404, "There is nothing at this path. `/schema` lists all calls.")).toBe(true);
  expect(isUnknownPath(404, "Not Found")).toBe(true);
  expect(isUnknownPath(404, "There is no such schedule.")).toBe(false);
  expect(isUnknownPath(404)).toBe(false);
  expect(isUnknownPath(409, "Not Found")).toBe(false);
});
