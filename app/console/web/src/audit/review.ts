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

/** The fields of a schedule that can be changed. Its state is not among them: every run changes it. */
export const EDITABLE = [
  ...["name", "description", "workflow_id", "trigger_node_id", "trigger_payload"],
  ...["interval_seconds", "every", "cron", "rrule", "at", "after", "timezone", "jitter_seconds", "only_between"],
  ...["not_on", "exclude_calendars", "only_calendars", "start_at", "end_at"],
  ...["total_repeats", "max_retries", "backoff_base_seconds", "timeout_seconds", "catch_up", "misfire_grace_seconds"],
  ...["if_running", "max_queued", "delete_after_seconds", "key", "labels", "limit"],
];

/** Returns whether two lists have the same schedules with the same definitions. */
export function isSame(before: Schedule[], after: Schedule[]): boolean {
  const definitions = (schedules: Schedule[]) => schedules.map(definitionOf).sort();
  return definitions(before).join() === definitions(after).join();
}

function definitionOf(schedule: Schedule): string {
  const values = schedule as unknown as Record<string, unknown>;
  return JSON.stringify(["id", ...EDITABLE].map((name) => values[name]));
}
