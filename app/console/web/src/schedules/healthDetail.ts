/** What the strip of a schedule says about its health: who paused it and when, how often in a row it failed. */

import type { Schedule, Slots, Span } from "../api/types";
import { kindOf } from "../strip/marks";

/** Returns the pause that a schedule is in, if its slots name it. */
export function pauseOf(schedule: Pick<Schedule, "status">, slots: Slots | undefined): Span | undefined {
  if (schedule.status !== "paused") return undefined;
  const pauses = slots?.spans.filter((span) => span.kind === "paused" && (span.to === null || Date.parse(span.to) > Date.now()));
  return pauses?.toSorted((a, b) => Date.parse(b.from) - Date.parse(a.from))[0];
}

/** Returns how many of the newest slots failed, one after another; slots that did not run do not count. */
export function failuresOf(slots: Slots | undefined): number {
  const kinds = slots?.items.map(kindOf) ?? [];
  const ended = kinds.filter((kind) => kind === "succeeded" || kind === "retried" || kind === "failed");
  const first = ended.findIndex((kind) => kind !== "failed");
  return first === -1 ? ended.length : first;
}
