import type { Schedule } from "../api/types";

export interface Waiting {
  leaseId: number;
  items: Schedule[];
}

/** Returns the schedules that await review by their leases; those without one are not an agent's. */
export function byLease(schedules: Schedule[]): Waiting[] {
  const groups = Map.groupBy(schedules, (schedule) => schedule.lease_id ?? null);
  return [...groups].flatMap(([leaseId, items]) => (leaseId === null ? [] : [{ leaseId, items }]));
}

/** Returns whether two lists have the same schedules in the same versions. */
export function isSame(before: Schedule[], after: Schedule[]): boolean {
  const versions = (schedules: Schedule[]) => schedules.map(({ id, updated_at }) => `${id} ${updated_at}`).sort();
  return versions(before).join() === versions(after).join();
}
