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

/** What several operations have done together. */
export type Sum = Pick<Operation, "status" | "done" | "failed" | "skipped" | "total" | "skipped_reasons" | "errors" | "error"> & {
  isUnderWay: boolean;
};

/** The states in which operations end, the worst first. */
const ENDED = ["failed", "cancelled", "done"];
const isUnderWay = (one: Operation) => !ENDED.includes(one.status);

/** Adds up how far several operations are. The status is the worst of those that have ended. */
export function sumOf(operations: Operation[]): Sum {
  const add = (value: (one: Operation) => number) => operations.reduce((sum, one) => sum + value(one), 0);
  const reasons = Map.groupBy(operations.flatMap((one) => one.skipped_reasons), ({ reason }) => reason);
  return {
    status: ENDED.find((status) => operations.some((one) => one.status === status)) ?? "running",
    done: add((one) => one.done),
    failed: add((one) => one.failed),
    skipped: add((one) => one.skipped),
    total: add((one) => one.total),
    skipped_reasons: [...reasons].map(([reason, same]) => ({ reason, count: same.reduce((sum, one) => sum + one.count, 0) })),
    errors: operations.flatMap((one) => one.errors),
    error: [...new Set(operations.map((one) => one.error).filter(Boolean))].join(" "),
    isUnderWay: operations.some(isUnderWay),
  };
}

/** Operations that are asked for at once. More would exceed the rate limit of the API. */
const PER_TURN = 5;

/** Returns the operations to ask for in a turn: a few of those under way, others in each turn. */
export function toRead(operations: Operation[], turn: number, most = PER_TURN): Operation[] {
  const open = operations.filter(isUnderWay);
  const first = open.length > most ? (turn * most) % open.length : 0;
  return [...open.slice(first), ...open.slice(0, first)].slice(0, most);
}

/** Returns the operations with the newer versions of some. */
export function withNewer(operations: Operation[], newer: Operation[]): Operation[] {
  const byId = new Map(newer.map((one) => [one.id, one]));
  return operations.map((one) => byId.get(one.id) ?? one);
}

/** With more requests than this, there is a pause after each. */
const MANY_REQUESTS = 20;
const PAUSE_MS = 50;

/** Returns how long to wait between so many requests, to stay within the rate limit of the API. */
export function pauseMs(requests: number): number {
  return requests > MANY_REQUESTS ? PAUSE_MS : 0;
}
