/** Whose limits are whose: several owners can have limits of the same name. */

import type { Execution, Limit } from "../api/types";

type Owned = Pick<Limit, "name" | "user_profile_id" | "team_id" | "public">;

/** Returns whether a call by name and team means this limit. The limits of other users have no such call. */
export function isAddressable({ user_profile_id, team_id }: Owned, userId: number): boolean {
  return team_id !== null || user_profile_id === userId;
}

/** Returns whether another limit of the list has the same name. */
export function isAmbiguous(limit: Owned, all: Owned[]): boolean {
  return all.filter(({ name }) => name === limit.name).length > 1;
}

/**
 * Returns the runs that wait for a limit, the next one first.
 *
 * A run names its limit only. Among limits of the same name it means that of its owner, else one of a team or a
 * public one.
 */
export function runsWaitingFor(
  limit: Owned,
  all: Owned[],
  runs: Execution[],
  ownerOf: (run: Execution) => number | undefined,
): Execution[] {
  const owners = new Set(all.filter(({ name }) => name === limit.name).map((one) => one.user_profile_id));
  const isMeant = (run: Execution) => {
    const owner = ownerOf(run);
    if (owner !== undefined && owners.has(owner)) return owner === limit.user_profile_id;
    return limit.team_id !== null || limit.public;
  };
  return runs
    .filter((run) => run.waiting_for === `limit:${limit.name}`)
    .filter((run) => owners.size < 2 || isMeant(run))
    .toReversed();
}
