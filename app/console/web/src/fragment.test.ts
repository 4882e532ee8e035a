import { expect, test } from "vitest";
import { codeIn } from "./fragment";
import { allows } from "./ui/scopes";

test("the code is found in the fragment alone", () => {
  expect(codeIn("#code=abc_-1")).toBe("abc_-1");
  expect(codeIn("#other=1")).toBeNull();
  expect(codeIn("")).toBeNull();
});

test("a scope includes those below it, and an unknown one includes nothing", () => {
  expect(allows(["write"], "operate")).toBe(true);
  expect(allows(["operate"], "write")).toBe(false);
  expect(allows(["unheard-of"], "read")).toBe(false);
});
