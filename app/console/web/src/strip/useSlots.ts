/** The slots of a schedule. A server without `slots` gives the ledger and the runs, which say the same of the past. */

import { useQuery } from "@tanstack/react-query";
import { schedules } from "../api/client";
import { NotSupportedError } from "../api/http";
import { useInterval } from "../live/useLive";
import type { Execution, Slot, Slots } from "../api/types";

const REFRESH_MS = 5000;

export function useSlots(id: string, last = 80) {
  return useQuery({
    queryKey: ["slots", id, last],
    queryFn: () => slotsOf(id, last),
    refetchInterval: useInterval(REFRESH_MS),
  });
}

async function slotsOf(id: string, last: number): Promise<Slots> {
  try {
    const found = await schedules.slots(id, { limit: last, ahead: 10 });
    return { items: found.items ?? [], spans: found.spans ?? [] };
  } catch (error) {
    if (!(error instanceof NotSupportedError)) throw error;
    const [ledger, runs] = await Promise.all([schedules.ledger(id, last), schedules.runs(id, 500)]);
    return { items: withRuns(ledger.items, runs.items), spans: [] };
  }
}

/** Adds to each entry of a ledger how its run ended. */
export function withRuns(ledger: Slot[], runs: Execution[]): Slot[] {
  const bySlot = Map.groupBy(
    runs.filter((run) => run.trigger !== "manual"),
    (run) => run.scheduled_for,
  );
  return ledger.map((entry) => {
    const attempts = bySlot.get(entry.slot) ?? [];
    const latest = attempts.reduce<Execution | undefined>(
      (best, run) => (best && best.retry_attempt > run.retry_attempt ? best : run),
      undefined,
    );
    if (!latest) return entry;
    return { ...entry, status: latest.status, attempts: attempts.length, duration_ms: latest.duration_ms };
  });
}
