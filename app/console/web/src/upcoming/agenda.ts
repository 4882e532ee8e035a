import type { Upcoming } from "../api/types";
import { instantText } from "../ui/time";

export interface Day {
  day: string;
  items: Upcoming[];
}

/** Returns the items by the day on which they are due in a zone, in their order. */
export function daysOf(items: Upcoming[], zone: string): Day[] {
  const days = Map.groupBy(items, (item) => instantText(item.at, zone).slice(0, 10));
  return [...days].map(([day, found]) => ({ day, items: found }));
}
