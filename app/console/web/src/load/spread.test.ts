import { expect, test } from "vitest";
import type { Operation } from "../api/types";
import { changeGroups, sumOf, type SpreadChange } from "./spread";

const change = (id: string, cron: string): SpreadChange => ({ id, name: id, set: { cron } });

test("schedules that get the same values are one operation, cut where an operation is full", () => {
  const changes = [change("a", "1 0 * * *"), change("b", "2 0 * * *"), change("c", "1 0 * * *"), change("d", "1 0 * * *")];
  expect(changeGroups(changes, 2)).toEqual([
    { ids: ["a", "c"], fields: { cron: "1 0 * * *" } },
    { ids: ["d"], fields: { cron: "1 0 * * *" } },
    { ids: ["b"], fields: { cron: "2 0 * * *" } },
  ]);
});

test("operations are under way until the last has ended", () => {
  const operation = (status: string, done: number) => ({ status, done, failed: 1, total: 9 }) as Operation;
  expect(sumOf([operation("done", 8), operation("running", 2)])).toEqual({ done: 10, failed: 2, total: 18, isUnderWay: true });
  expect(sumOf([operation("done", 8), operation("cancelled", 2)]).isUnderWay).toBe(false);
});
