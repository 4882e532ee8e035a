import { expect, test } from "vitest";
import type { Operation } from "../api/types";
import { changeGroups, pauseMs, sumOf, toRead, withNewer, type SpreadChange } from "./spread";

const change = (id: string, cron: string): SpreadChange => ({ id, name: id, set: { cron } });

test("schedules that get the same values are one operation, cut where an operation is full", () => {
  const changes = [change("a", "1 0 * * *"), change("b", "2 0 * * *"), change("c", "1 0 * * *"), change("d", "1 0 * * *")];
  expect(changeGroups(changes, 2)).toEqual([
    { ids: ["a", "c"], fields: { cron: "1 0 * * *" } },
    { ids: ["d"], fields: { cron: "1 0 * * *" } },
    { ids: ["b"], fields: { cron: "2 0 * * *" } },
  ]);
});

const operation = (id: string, status: string, values: Partial<Operation> = {}) =>
  ({ id, status, done: 1, failed: 0, skipped: 0, total: 2, skipped_reasons: [], errors: [], error: "", ...values }) as Operation;

test("operations are under way until the last has ended, and end as the worst of them", () => {
  const errors = [{ schedule_id: "x", message: "locked" }];
  const skipped = { skipped: 1, skipped_reasons: [{ reason: "gone", count: 1 }] };
  const ended = [operation("a", "done", skipped), operation("b", "failed", { failed: 1, errors, error: "stopped" }), operation("c", "done", skipped)];
  expect(sumOf([...ended, operation("d", "running")]).isUnderWay).toBe(true);
  expect(sumOf(ended)).toEqual({
    ...{ status: "failed", done: 3, failed: 1, skipped: 2, total: 6, isUnderWay: false },
    ...{ skipped_reasons: [{ reason: "gone", count: 2 }], errors, error: "stopped" },
  });
  expect(sumOf([operation("a", "done"), operation("b", "cancelled")]).status).toBe("cancelled");
  expect(sumOf([operation("a", "done")]).status).toBe("done");
});

test("a turn asks for a few operations under way, and in the end all are asked for", () => {
  let known = Array.from({ length: 23 }, (_, index) => operation(String(index), index === 0 ? "done" : "running"));
  let turns = 0;
  for (; sumOf(known).isUnderWay && turns < 100; turns += 1) {
    const asked = toRead(known, turns);
    expect(asked.length).toBeLessThanOrEqual(5);
    expect(asked.map(({ id }) => id)).not.toContain("0");
    known = withNewer(known, asked.map((one) => ({ ...one, status: "done" })));
  }
  expect(turns).toBe(5);
  const stuck = Array.from({ length: 12 }, (_, index) => operation(String(index), "paused"));
  const seen = [0, 1, 2].flatMap((turn) => toRead(stuck, turn).map(({ id }) => id));
  expect(new Set(seen).size).toBe(12);
});

test("many requests have pauses between them", () => {
  expect([pauseMs(3), pauseMs(300) > 0]).toEqual([0, true]);
});
