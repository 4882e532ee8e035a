/** How instants are written. Nothing here computes when something is due: the server does. */

import type { ZoneChoice } from "../preferences";

export function zoneFor(choice: ZoneChoice, own: string, ofSchedule?: string): string {
  if (choice === "utc") return "UTC";
  return choice === "schedule" && ofSchedule ? ofSchedule : choice === "mine" ? own : "UTC";
}

/** Writes an instant in a zone as `2026-11-18 05:05:29`, with the zone unless it is left out. */
export function instantText(at: string | number, zone: string, withZone = true): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const parts = Object.fromEntries(formatter(zone).formatToParts(date).map((part) => [part.type, part.value]));
  const clock = `${parts.hour}:${parts.minute}:${parts.second}`.replace(/:00$/, "");
  return `${parts.year}-${parts.month}-${parts.day} ${clock}${withZone ? ` ${zone}` : ""}`;
}

const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)/g;

/** Writes the instants in a text of the server as all others on the page, in the same zone. */
export function readable(text: string, zone: string): string {
  return text.replace(INSTANT, (at) => instantText(at, zone));
}

export function clockText(at: string | number, zone: string): string {
  const parts = Object.fromEntries(formatter(zone).formatToParts(new Date(at)).map((part) => [part.type, part.value]));
  return `${parts.hour}:${parts.minute}`;
}

const formatters = new Map<string, Intl.DateTimeFormat>();

function formatter(zone: string): Intl.DateTimeFormat {
  let known = formatters.get(zone);
  if (!known) {
    known = new Intl.DateTimeFormat("en-GB", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    });
    formatters.set(zone, known);
  }
  return known;
}

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

/** Writes how far an instant is from now: "in 5 min.", "2 hr. ago". */
export function distanceText(at: string, now: number, locale: string): string {
  const seconds = Math.round((new Date(at).getTime() - now) / 1000);
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  const format = new Intl.RelativeTimeFormat(locale, { numeric: "always", style: "short" });
  return format.format(Math.trunc(seconds / size), unit);
}

/** Writes a duration as people say it: 340 ms, 2.4 s, 3 min 5 s. */
export function durationText(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  const seconds = Math.round(ms / 1000);
  return seconds < 3600
    ? `${Math.floor(seconds / 60)} min ${seconds % 60} s`
    : `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
