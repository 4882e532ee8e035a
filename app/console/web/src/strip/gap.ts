/** Gaps: neighbouring slots of the past that did not run. */

import type { Instant, Slot } from "../api/types";
import { isSkipped, kindOf } from "./marks";

export interface Gap {
  from: Instant;
  to: Instant;
  count: number;
}

const REQUESTED = "skipped_request";
const firstOf = (slot: Slot) => slot.from ?? slot.slot;
const lastOf = (slot: Slot) => slot.to ?? slot.slot;

/** Returns the gap that a slot lies in, or null if it ran or is still to come. Slots that people left out are apart. */
export function gapAround(slots: Slot[], at: Instant, now: number): Gap | null {
  const past = slots
    .filter((slot) => Date.parse(lastOf(slot)) <= now)
    .toSorted((a, b) => Date.parse(firstOf(a)) - Date.parse(firstOf(b)));
  const moment = Date.parse(at);
  const index = past.findIndex((slot) => Date.parse(firstOf(slot)) <= moment && moment <= Date.parse(lastOf(slot)));
  const found = past[index];
  if (!found || !isUnfired(found)) return null;
  const belongs = (slot: Slot | undefined) =>
    slot !== undefined && isUnfired(slot) && (slot.outcome === REQUESTED) === (found.outcome === REQUESTED);
  let first = index;
  let last = index;
  while (belongs(past[first - 1])) first -= 1;
  while (belongs(past[last + 1])) last += 1;
  const members = past.slice(first, last + 1);
  return {
    from: firstOf(members[0] ?? found),
    to: lastOf(members.at(-1) ?? found),
    count: members.reduce((sum, slot) => sum + (slot.count ?? 1), 0),
  };
}

/** Coalesced slots are not meant: a later run stands for them. */
function isUnfired(slot: Slot): boolean {
  const kind = kindOf(slot);
  return kind === "missed" || isSkipped(kind);
}

/** Returns the slots to come that somebody asked to leave out, the next one first. */
export function plannedSkips(slots: Slot[], now: number): Slot[] {
  return slots
    .filter((slot) => slot.outcome === REQUESTED && Date.parse(slot.slot) > now)
    .toSorted((a, b) => Date.parse(a.slot) - Date.parse(b.slot));
}
