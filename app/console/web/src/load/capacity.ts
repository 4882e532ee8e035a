/** The measured capacity: the most runs that started in time within a bucket. */

import type { Forecast, Instant, LatenessStep } from "../api/types";

export interface Capacity {
  at: Instant;
  runs: number;
}

/** Runs whose slowest hundredth starts later than this are not in time. */
const IN_TIME_MS = 10_000;

/** Returns the fullest step of which nearly all runs started in time; null if nothing has run. */
export function capacityOf(steps: readonly LatenessStep[]): Capacity | null {
  const inTime = steps.filter((step) => step.count > 0 && (step.p99_ms ?? 0) <= IN_TIME_MS);
  const [most] = inTime.toSorted((a, b) => b.count - a.count);
  return most ? { at: most.at, runs: most.count } : null;
}

/** Returns how many buckets have more fires than were ever handled in time. */
export function bucketsAbove(buckets: Forecast["buckets"], capacity: Capacity): number {
  return buckets.filter((bucket) => bucket.fires > capacity.runs).length;
}
