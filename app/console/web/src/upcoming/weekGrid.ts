/** The load of a week as a grid: a column for each day, a row for each hour of a clock in the chosen zone. */

import type { ClosedSpan, Forecast, Instant } from "../api/types";
import { clockText, instantText } from "../ui/time";

export interface HourCell {
  from: Instant;
  to: Instant;
  fires: number;
  /** The schedules that fire in it, as far as the forecast names them; those that seldom fire first. */
  names: string[];
}

export interface WeekDay {
  day: string;
  /** By the hour of the clock; an hour that the forecast does not cover has none. */
  hours: Map<number, HourCell>;
}

export const BUCKET_SECONDS = 900;
export const DAYS = 7;

/** Returns the days of a forecast with buckets of a quarter of an hour: offsets of zones are multiples of that. */
export function weekOf(forecast: Forecast, zone: string): WeekDay[] {
  const days = new Map<string, WeekDay>();
  const seldomFirst = forecast.groups.toSorted((a, b) => a.fires - b.fires);
  forecast.buckets.forEach((bucket, index) => {
    const day = instantText(bucket.at, zone).slice(0, 10);
    const column = days.get(day) ?? { day, hours: new Map<number, HourCell>() };
    days.set(day, column);
    const hour = Number(clockText(bucket.at, zone).slice(0, 2));
    const cell = column.hours.get(hour) ?? { from: bucket.at, to: bucket.at, fires: 0, names: [] };
    cell.to = new Date(Date.parse(bucket.at) + BUCKET_SECONDS * 1000).toISOString();
    cell.fires += bucket.fires;
    for (const group of seldomFirst)
      if (group.buckets[index] && !cell.names.includes(group.name)) cell.names.push(group.name);
    column.hours.set(hour, cell);
  });
  return [...days.values()].slice(0, DAYS);
}

export interface TimeSpan {
  from: Instant;
  to: Instant;
}

/** Returns the span from one cell to another, whichever is the earlier one. */
export function spanOf(one: TimeSpan, other: TimeSpan): TimeSpan {
  return { from: one.from < other.from ? one.from : other.from, to: one.to > other.to ? one.to : other.to };
}

const isBefore = (one: Instant, other: Instant) => Date.parse(one) < Date.parse(other);

/** Returns whether a cell lies within a span. */
export function isWithin(cell: TimeSpan, span: TimeSpan | undefined): boolean {
  return span !== undefined && !isBefore(cell.from, span.from) && !isBefore(span.to, cell.to);
}

/** Returns what calendars leave out during a cell, by calendar and entry, each once. */
export function closedIn(cell: TimeSpan, closed: readonly ClosedSpan[]): string[] {
  const found = closed.filter((span) => isBefore(span.from, cell.to) && isBefore(cell.from, span.to));
  return [...new Set(found.map(({ calendar, entry }) => `${calendar}: ${entry}`))];
}

/** Returns how dark a cell is, from 0 to 1, on a cube root's scale. */
export function shadeOf(cell: HourCell | undefined, most: number): number {
  return cell ? Math.cbrt(cell.fires / Math.max(1, most)) : 0;
}
