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

test("a review is of the definitions that were seen, however often they have run since", () => {
  const at = (id: string, values: Partial<Schedule> = {}) => ({ id, cron: "0 6 * * *", run_count: 1, ...values }) as Schedule;
  expect(isSame([at("a"), at("b")], [at("b", { run_count: 2, updated_at: "later" }), at("a")])).toBe(true);
  expect(isSame([at("a")], [at("a", { cron: "* * * * *" })])).toBe(false);
  expect(isSame([at("a")], [at("a", { trigger_payload: { delete: "all" } })])).toBe(false);
  expect(isSame([at("a")], [at("a"), at("b")])).toBe(false);
});
