/** The measured capacity: how many runs started in time within a bucket, and how many were too many. */

import type { Forecast, Instant, LatenessStep } from "../api/types";

export interface Capacity {
  /** The fullest step of which nearly all runs started in time. */
  at: Instant;
  runs: number;
  /** The least number of runs, above that, of which many started late; null if that has not happened. */
  lateFrom: number | null;
}

/** Runs whose slowest hundredth starts later than this are not in time. */
const IN_TIME_MS = 10_000;

/** Returns what the steps show; null if nothing has started in time. */
export function capacityOf(steps: readonly LatenessStep[]): Capacity | null {
  const isInTime = (step: LatenessStep) => (step.p99_ms ?? 0) <= IN_TIME_MS;
  const byRuns = steps.filter((step) => step.count > 0).toSorted((a, b) => a.count - b.count);
  const most = byRuns.findLast(isInTime);
  if (!most) return null;
  return { at: most.at, runs: most.count, lateFrom: byRuns.find((step) => step.count > most.count)?.count ?? null };
}

/** Returns how many buckets have more fires than ever started in time. */
export function bucketsAbove(buckets: Forecast["buckets"], { runs }: Capacity): number {
  return buckets.filter((bucket) => bucket.fires > runs).length;
}

/** Returns whether so many fires were too many before. */
export function isTooMany(fires: number, capacity: Capacity | null): boolean {
  return capacity !== null && capacity.lateFrom !== null && fires >= capacity.lateFrom;
}
