/** Steps of a run, or the attempts at a slot, on one axis of time. */

import type { Execution, Instant } from "../api/types";

export interface Bar {
  left: number;
  width: number;
  ms: number | null;
}

export interface Timed {
  started_at: Instant;
  finished_at: Instant | null;
}

/** Returns where each begins and how long it is, in parts of the whole; what still runs ends now. */
export function barsOf(items: readonly Timed[], now: number): Bar[] {
  const times = items.map((item) => ({
    from: Date.parse(item.started_at),
    to: item.finished_at ? Date.parse(item.finished_at) : now,
    ended: item.finished_at !== null,
  }));
  const first = Math.min(...times.map((one) => one.from));
  const whole = Math.max(1, ...times.map((one) => one.to - first));
  return times.map((one) => ({
    left: (one.from - first) / whole,
    width: Math.max(0.004, (one.to - one.from) / whole),
    ms: one.ended ? one.to - one.from : null,
  }));
}

export interface Attempt extends Timed {
  run: Execution;
  /** The time since the attempt before it ended; null for the first one. */
  waitedMs: number | null;
}

/** Returns the attempts at the slot of a run that have begun, the first one first; none if there is only one. */
export function attemptsOf(run: Execution, others: readonly Execution[]): Attempt[] {
  const all = [run, ...others.filter((one) => one.id !== run.id && one.scheduled_for === run.scheduled_for)]
    .filter((one) => one.started_at !== null && one.trigger !== "manual")
    .sort((a, b) => Date.parse(a.started_at ?? "") - Date.parse(b.started_at ?? ""));
  if (all.length < 2) return [];
  return all.map((one, index) => {
    const [started_at, before] = [one.started_at ?? one.scheduled_for, all[index - 1]?.finished_at];
    const waitedMs = before ? Date.parse(started_at) - Date.parse(before) : null;
    return { run: one, started_at, finished_at: one.finished_at, waitedMs };
  });
}
