import type { Check } from "../api/types";

/** Returns the index of the check that decided: the first that did not pass, or -1 if all did. */
export function decidingCheck(checks: Check[]): number {
  return checks.findIndex((check) => !check.passed);
}
