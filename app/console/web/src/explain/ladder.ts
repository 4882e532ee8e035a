import type { Check } from "../api/types";

/** Returns the index of the check that decided: the first that did not pass, or -1 if all did. */
export function decidingCheck(checks: Check[]): number {
  return checks.findIndex((check) => !check.passed);
}

/** Returns whether a breaker kept the slot from firing, or would if it were due now. */
export function isHeldByBreaker({ checks }: { checks: Check[] }): boolean {
  return checks.some((check) => check.check === "breaker" && !check.passed);
}
