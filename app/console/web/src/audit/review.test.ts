import { expect, test } from "vitest";
import type { Schedule } from "../api/types";
import { byLease, isSame } from "./review";

test("schedules are reviewed lease by lease", () => {
  const schedules = [{ id: "a", lease_id: 2 }, { id: "b", lease_id: 1 }, { id: "c", lease_id: 2 }, { id: "d" }] as Schedule[];
  const found = byLease(schedules).map(({ leaseId, items }) => [leaseId, items.map(({ id }) => id).join("")]);
  expect(found).toEqual([
    [2, "ac"],
    [1, "b"],
  ]);
});

test("a review is one of the versions that were seen", () => {
  const at = (id: string, updated_at: string) => ({ id, updated_at }) as Schedule;
  expect(isSame([at("a", "1"), at("b", "1")], [at("b", "1"), at("a", "1")])).toBe(true);
  expect(isSame([at("a", "1")], [at("a", "2")])).toBe(false);
  expect(isSame([at("a", "1")], [at("a", "1"), at("b", "1")])).toBe(false);
});
