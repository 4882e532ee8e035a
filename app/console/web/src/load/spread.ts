/** A proposal to spread load, as operations: one for each set of schedules that get the same values. */

import type { Operation, Spread } from "../api/types";

export type SpreadChange = Spread["changes"][number];

export interface ChangeGroup {
  ids: string[];
  fields: Record<string, unknown>;
}

/** The most schedules that one operation names. */
const MOST_IDS = 1000;

export function changeGroups(changes: SpreadChange[], most = MOST_IDS): ChangeGroup[] {
  const groups: ChangeGroup[] = [];
  for (const equal of Map.groupBy(changes, ({ set }) => JSON.stringify(set)).values()) {
    for (let start = 0; start < equal.length; start += most) {
      const part = equal.slice(start, start + most);
      groups.push({ ids: part.map(({ id }) => id), fields: part[0]?.set ?? {} });
    }
  }
  return groups;
}

export interface Sum {
  done: number;
  failed: number;
  total: number;
  isUnderWay: boolean;
}

const ENDED = new Set(["done", "cancelled", "failed"]);

/** Adds up how far several operations are. */
export function sumOf(operations: Operation[]): Sum {
  const add = (value: (one: Operation) => number) => operations.reduce((sum, one) => sum + value(one), 0);
  return {
    done: add((one) => one.done),
    failed: add((one) => one.failed),
    total: add((one) => one.total),
    isUnderWay: operations.some((one) => !ENDED.has(one.status)),
  };
}
