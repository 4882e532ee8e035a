/** The geometry of charts: stacked bars of outcomes, and lines of lateness on a log axis. */

import type { LatenessStep, OutcomeStep } from "../api/types";
import { isSkipped, kindOf, type Kind } from "../strip/marks";

export interface Frame {
  from: number;
  to: number;
  stepMs: number;
  width: number;
  height: number;
}

/** From the bottom to the top of a bar: what went well is the base, what did not stands out above it. */
export const STACK: readonly Kind[] = [
  "succeeded",
  "retried",
  "running",
  "queued",
  "coalesced",
  "cancelled",
  "skipped",
  "other",
  "missed",
  "failed",
];

export type Counts = Partial<Record<Kind, number>>;

/** Returns the counts of outcomes by the kinds of marks that the strips use; all that were skipped are one. */
export function countsOf(outcomes: Record<string, number>): Counts {
  const counts: Counts = {};
  for (const [outcome, count] of Object.entries(outcomes)) {
    const found = kindOf({ slot: "", outcome, status: outcome });
    const kind = isSkipped(found) ? "skipped" : found;
    counts[kind] = (counts[kind] ?? 0) + count;
  }
  return counts;
}

export function totalsOf(steps: readonly OutcomeStep[]): Counts {
  const totals: Counts = {};
  for (const step of steps)
    for (const [kind, count] of Object.entries(countsOf(step.outcomes)) as [Kind, number][])
      totals[kind] = (totals[kind] ?? 0) + count;
  return totals;
}

const sum = (counts: Counts) => Object.values(counts).reduce((total, one) => total + one, 0);
const xOf = (at: number, frame: Frame) => ((at - frame.from) / (frame.to - frame.from)) * frame.width;

/** Returns a number of the form 1, 2 or 5 times a power of ten that is not less than the largest value. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return (([1, 2, 5].find((step) => step * power >= value) ?? 10) * power);
}

export interface Bars {
  paths: Partial<Record<Kind, string>>;
  most: number;
}

/** Draws each kind as a single path. */
export function barsOf(steps: readonly OutcomeStep[], frame: Frame): Bars {
  const counted = steps.map((step) => ({ at: Date.parse(step.at), counts: countsOf(step.outcomes) }));
  const most = roundUp(Math.max(0, ...counted.map((step) => sum(step.counts))));
  const width = Math.max(1, xOf(frame.from + frame.stepMs, frame) - 1);
  const paths: Bars["paths"] = {};
  for (const { at, counts } of counted) {
    let base = frame.height;
    for (const kind of STACK) {
      const tall = ((counts[kind] ?? 0) / most) * frame.height;
      if (!tall) continue;
      base -= tall;
      const rect = `M${round(xOf(at, frame))} ${round(base)}h${round(width)}v${round(tall)}h${round(-width)}z`;
      paths[kind] = (paths[kind] ?? "") + rect;
    }
  }
  return { paths, most };
}

const round = (value: number) => Math.round(value * 10) / 10;
const LEAST_MS = 1;

/** Returns the height of a duration on a log axis from 1 ms to the top. */
export function logY(ms: number, top: number, height: number): number {
  const share = Math.log10(Math.max(LEAST_MS, ms)) / Math.log10(top);
  return round(height * (1 - Math.min(1, share)));
}

/** Returns the powers of ten from 1 ms to one that is above the largest value: the ticks of the axis. */
export function decades(steps: readonly LatenessStep[]): number[] {
  const most = Math.max(10, ...steps.map((step) => step.p99_ms ?? 0));
  return Array.from({ length: Math.ceil(Math.log10(most)) + 1 }, (_, power) => 10 ** power);
}

/** Draws a percentile as one path, which is broken where steps without runs are. */
export function lineOf(steps: readonly LatenessStep[], which: "p50_ms" | "p99_ms", frame: Frame, top: number): string {
  let path = "";
  let last: number | null = null;
  for (const step of steps) {
    const value = step[which];
    if (value === null) continue;
    const at = Date.parse(step.at);
    const joined = last !== null && at - last <= frame.stepMs;
    path += `${joined ? "L" : "M"}${round(xOf(at + frame.stepMs / 2, frame))} ${logY(value, top, frame.height)}`;
    if (!joined) path += "h0.1";
    last = at;
  }
  return path;
}

/** Returns the index of the step that a place of the chart belongs to, or -1. */
export function stepAt(steps: readonly { at: string }[], x: number, frame: Frame): number {
  const at = frame.from + (x / frame.width) * (frame.to - frame.from);
  return steps.findIndex((step) => at >= Date.parse(step.at) && at < Date.parse(step.at) + frame.stepMs);
}

/** Returns where on the axis of time an instant is, from 0 to the width. */
export const placeOf = (at: string, frame: Frame): number => round(xOf(Date.parse(at), frame));
