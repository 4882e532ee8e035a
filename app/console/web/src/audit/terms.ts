/** The terms of a lease as a form has them: texts, as they were typed. */

import type { Lease } from "../api/types";
import { inputOf, instantOf } from "../schedules/until";

export const NUMBERS = ["max_schedules", "max_runs", "max_retries", "min_interval_seconds", "max_writes"] as const;
export const REVIEWS = ["none", "after", "before"] as const;
export const ENDS = ["pause", "delete"] as const;
export type NumberTerm = (typeof NUMBERS)[number];

export interface Terms extends Record<NumberTerm, string> {
  purpose: string;
  expires: string;
  workflows: string;
  review: string;
  at_end: string;
}

const DAY_MS = 86_400_000;
const FIRST_DAYS = 30;

/** Returns the terms that a new lease begins with: a review before anything runs, and an end in a month. */
export function newTerms(now: number): Terms {
  return {
    purpose: "",
    expires: inputOf(now + FIRST_DAYS * DAY_MS),
    max_schedules: "10",
    max_runs: "1000",
    max_retries: "3",
    min_interval_seconds: "60",
    max_writes: "0",
    workflows: "",
    review: "before",
    at_end: "pause",
  };
}

export function termsOf(lease: Lease): Terms {
  const numbers = Object.fromEntries(NUMBERS.map((name) => [name, String(lease[name])])) as Record<NumberTerm, string>;
  return {
    ...numbers,
    purpose: lease.purpose,
    expires: inputOf(lease.expires_at),
    workflows: lease.workflows.join(", "),
    review: lease.review,
    at_end: lease.at_end,
  };
}

/** Returns what is sent for terms: all of them, or those that differ from the ones before. */
export function bodyOf(terms: Terms, before?: Terms): Record<string, unknown> {
  const values: Record<keyof Terms, unknown> = {
    ...(Object.fromEntries(NUMBERS.map((name) => [name, Number(terms[name])])) as Record<NumberTerm, number>),
    purpose: terms.purpose.trim(),
    expires: instantOf(terms.expires),
    workflows: terms.workflows.split(/[\s,]+/).filter(Boolean).map(Number),
    review: terms.review,
    at_end: terms.at_end,
  };
  const names = (Object.keys(values) as (keyof Terms)[]).filter((name) => !before || before[name] !== terms[name]);
  return Object.fromEntries(names.map((name) => [name === "expires" ? "expires_at" : name, values[name]]));
}
