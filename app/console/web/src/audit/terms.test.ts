import { expect, test } from "vitest";
import { bodyOf, newTerms } from "./terms";

const NOW = Date.parse("2026-11-18T04:00:00Z");

test("a new lease has all terms as the API takes them", () => {
  const body = bodyOf({ ...newTerms(NOW), purpose: " reports ", workflows: "3, 5" });
  expect(body).toMatchObject({ purpose: "reports", max_runs: 1000, workflows: [3, 5], review: "before", at_end: "pause" });
  expect(Date.parse(String(body.expires_at)) - NOW).toBe(30 * 86_400_000);
  expect(body).not.toHaveProperty("expires");
});

test("a change sends only what differs, so that the end of a lease keeps its seconds", () => {
  const before = newTerms(NOW);
  expect(bodyOf(before, before)).toEqual({});
  expect(bodyOf({ ...before, max_runs: "2000" }, before)).toEqual({ max_runs: 2000 });
});
