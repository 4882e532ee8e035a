/** What a pulse says, and which rows it makes worth asking for again. */

import type { Schedule } from "../api/types";

/** The message of the live stream, one each second. */
export interface Pulse {
  at: string;
  due: number;
  oldest_overdue_seconds: number;
  running: number;
  workers: number;
  mode: string;
  schedules_enabled: boolean;
  open_breakers: number;
  outcomes: Record<string, number>;
  p50_ms: number | null;
  p99_ms: number | null;
  /** Moves whenever something that the user sees is changed. */
  version: string | null;
}

/** The server returns at most this many schedules by their ids. */
export const MOST_ROWS = 200;
/** Rows are asked for again at most this often. */
export const REFRESH_MS = 2000;

type Row = Pick<Schedule, "id" | "next_run_at" | "last_outcome">;

/** Returns whether enough time has passed since the pulse that was last acted on. */
export function isTurn(pulse: Pulse, acted: Pulse | null): boolean {
  return acted === null || Date.parse(pulse.at) - Date.parse(acted.at) >= REFRESH_MS;
}

/** Returns whether something was changed since a pulse; without one nothing is known, which counts as a change. */
export function hasChanged(pulse: Pulse, before: Pulse | null): boolean {
  return before === null || pulse.version !== before.version;
}

/** Returns the ids of the rows that may look different now: all after a change, else those that are due or running. */
export function movedIds(rows: readonly Row[], pulse: Pulse, before: Pulse | null): string[] {
  const now = Date.parse(pulse.at);
  const isDue = (row: Row) => row.next_run_at !== null && Date.parse(row.next_run_at) <= now;
  const moved = hasChanged(pulse, before) ? rows : rows.filter((row) => isDue(row) || row.last_outcome === "running");
  return moved.slice(0, MOST_ROWS).map((row) => row.id);
}

/** Puts new values into the rows that were asked for again. No row moves; one that is gone is marked. */
export function withRows<T extends Schedule>(rows: readonly T[], asked: readonly string[], answer: readonly T[]): T[] {
  const fresh = new Map(answer.map((row) => [row.id, row]));
  const gone = new Set(asked.filter((id) => !fresh.has(id)));
  return rows.map((row) => {
    if (gone.has(row.id)) return { ...row, status: "deleted", health: "deleted", next_run_at: null, last_outcome: null };
    return fresh.get(row.id) ?? row;
  });
}

/** Returns how many rows of a newest-first list stand before the first one that is known. */
export function newerCount(ids: readonly string[], known: ReadonlySet<string>): number {
  const first = ids.findIndex((id) => known.has(id));
  return first < 0 ? ids.length : first;
}
