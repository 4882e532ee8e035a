import { expect, test } from "vitest";
import type { Execution } from "../api/types";
import { isAddressable, isAmbiguous, runsWaitingFor } from "./limitOwners";

const limit = (user_profile_id: number, name = "crm", team_id: number | null = null, isPublic = false) => ({
  ...{ name, user_profile_id, team_id },
  public: isPublic,
});
const run = (id: string, waiting_for = "limit:crm") => ({ id, waiting_for }) as Execution;

test("a limit of another user cannot be changed by its name; that of a team can", () => {
  expect([limit(1), limit(2), limit(9, "crm", 9)].map((one) => isAddressable(one, 1))).toEqual([true, false, true]);
});

test("a run waits for the limit of its owner, else for a shared one of the name", () => {
  const [own, other, shared] = [limit(1), limit(2), limit(3, "crm", null, true)];
  const all = [own, other, shared, limit(1, "erp")];
  const owners: Record<string, number> = { a: 1, b: 2, c: 4 };
  const runs = [run("a"), run("b"), run("c"), run("gone"), run("d", "turn")];
  const idsFor = (one: typeof own) => runsWaitingFor(one, all, runs, ({ id }) => owners[id]).map(({ id }) => id);
  expect([idsFor(own), idsFor(other), idsFor(shared)]).toEqual([["a"], ["b"], ["gone", "c"]]);
  expect([isAmbiguous(own, all), isAmbiguous(limit(1, "erp"), all)]).toEqual([true, false]);
});

test("the owner does not matter while the name is that of one limit", () => {
  const runs = [run("newer"), run("older")];
  expect(runsWaitingFor(limit(1), [limit(1)], runs, () => undefined).map(({ id }) => id)).toEqual(["older", "newer"]);
});
