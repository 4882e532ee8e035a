/** The schedule that somebody names by an id or a name. */

import type { Found } from "../api/types";

export const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Returns the ids of the schedules of this name. */
export function idsNamed(name: string, found: Found[]): string[] {
  return found.filter((one) => one.type === "schedule" && one.name === name).map((one) => String(one.id));
}
