import type { Instant, Upcoming } from "../api/types";
import { clockText, instantText } from "../ui/time";

/** The fires of a schedule within a minute. */
export interface AgendaRow {
  clock: string;
  at: Instant;
  /** The first of them. */
  item: Upcoming;
  items: Upcoming[];
}

export interface Day {
  day: string;
  rows: AgendaRow[];
}

/** Returns what is due by the day and the minute of a zone, in their order; what fires often in a minute is one row. */
export function daysOf(items: Upcoming[], zone: string): Day[] {
  const days = Map.groupBy(items, (item) => instantText(item.at, zone).slice(0, 10));
  return [...days].map(([day, found]) => ({ day, rows: rowsOf(found, zone) }));
}

function rowsOf(items: Upcoming[], zone: string): AgendaRow[] {
  const minutes = Map.groupBy(items, (item) => `${clockText(item.at, zone)} ${item.schedule_id}`);
  return [...minutes.values()].flatMap((same) => {
    const [item] = same;
    return item ? [{ clock: clockText(item.at, zone), at: item.at, item, items: same }] : [];
  });
}
