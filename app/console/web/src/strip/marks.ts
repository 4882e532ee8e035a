/** What the strip of slots shows: the kind of each mark, and the geometry of one path for each kind. */

import type { Slot, Slots, Span } from "../api/types";

export const KINDS = [
  "succeeded",
  "retried",
  "failed",
  "running",
  "queued",
  "skipped_overlap",
  "skipped_guard",
  "skipped_breaker",
  "skipped_queue_full",
  "skipped_retry",
  "skipped_request",
  "skipped",
  "missed",
  "coalesced",
  "cancelled",
  "other",
  "expected",
] as const;
export type Kind = (typeof KINDS)[number];

export const LETTERS: Record<Kind, string> = {
  succeeded: "S",
  retried: "R",
  failed: "F",
  running: "▸",
  queued: "Q",
  skipped_overlap: "O",
  skipped_guard: "G",
  skipped_breaker: "B",
  skipped_queue_full: "U",
  skipped_retry: "W",
  skipped_request: "H",
  skipped: "–",
  missed: "M",
  coalesced: "C",
  cancelled: "X",
  other: "?",
  expected: "",
};

const BY_STATUS: Record<string, Kind> = {
  success: "succeeded",
  failed: "failed",
  timed_out: "failed",
  lost: "failed",
  pending: "queued",
  running: "running",
  skipped: "skipped",
  blocked: "skipped",
  cancelled: "cancelled",
};

const KNOWN: ReadonlySet<string> = new Set(KINDS);
/** Outcomes that are kinds by themselves; the others are told apart by how the run ended. */
const OWN_KIND = /^(expected|missed|coalesced|skipped.*)$/;

export const isSkipped = (kind: Kind): boolean => kind.startsWith("skipped");

/** Returns the kind of a slot's mark. Outcomes and statuses of a newer server are `other`, not an error. */
export function kindOf(slot: Slot): Kind {
  const { outcome, status } = slot;
  if (OWN_KIND.test(outcome)) return KNOWN.has(outcome) ? (outcome as Kind) : "skipped";
  const kind = BY_STATUS[status ?? ""] ?? BY_STATUS[outcome] ?? (outcome === "queued" ? "queued" : "other");
  return kind === "succeeded" && (slot.attempts ?? 1) > 1 ? "retried" : kind;
}

export type Entry = { slot: Slot; span?: undefined; kind: Kind } | { span: Span; slot?: undefined; kind?: undefined };

/** Returns slots and spans from the oldest to the newest. */
export function entriesOf(slots: Slots): Entry[] {
  const entries: Entry[] = [
    ...slots.items.map((slot) => ({ slot, kind: kindOf(slot) })),
    ...(slots.spans ?? []).map((span) => ({ span })),
  ];
  const start = (entry: Entry) => Date.parse(entry.slot ? (entry.slot.from ?? entry.slot.slot) : entry.span.from);
  return entries.sort((a, b) => start(a) - start(b));
}

export type Measure = "plain" | "lateness" | "duration";

export interface Cell {
  x: number;
  width: number;
  entry: Entry;
}

export interface Layout {
  cells: Cell[];
  paths: Partial<Record<Kind, string>>;
  spans: { x: number; width: number; kind: string }[];
  nowX: number | null;
  width: number;
}

export interface Size {
  cell: number;
  gap: number;
  height: number;
}

const LONGEST_MS = 3_600_000;
const SMALLEST = 0.25;

/** Returns the share of the height that a measured slot has, on a log scale from 1 ms to an hour. */
export function shareOf(slot: Slot, measure: Measure): number {
  if (measure === "plain") return 1;
  const value = measure === "lateness" ? slot.lateness_ms : slot.duration_ms;
  if (value === null || value === undefined) return SMALLEST;
  return SMALLEST + (1 - SMALLEST) * Math.min(1, Math.log1p(Math.max(0, value)) / Math.log1p(LONGEST_MS));
}

/** Places all entries side by side and draws each kind as a single path. */
export function layoutOf(entries: Entry[], size: Size, measure: Measure = "plain"): Layout {
  const layout: Layout = { cells: [], paths: {}, spans: [], nowX: null, width: 0 };
  let x = 0;
  for (const entry of entries) {
    const width = widthOf(entry, size);
    layout.cells.push({ x, width, entry });
    if (entry.slot) {
      if (entry.kind === "expected" && layout.nowX === null) layout.nowX = x - size.gap / 2;
      const shape = shapeOf(entry.kind, x, width, size, shareOf(entry.slot, measure));
      layout.paths[entry.kind] = (layout.paths[entry.kind] ?? "") + shape;
    } else {
      layout.spans.push({ x, width, kind: entry.span.kind });
    }
    x += width + size.gap;
  }
  layout.width = Math.max(0, x - size.gap);
  return layout;
}

function widthOf(entry: Entry, size: Size): number {
  const cells = entry.span ? 2 : (entry.slot.count ?? 1) > 1 ? 3 : 1;
  return cells * size.cell + (cells - 1) * size.gap;
}

/** Returns the newest entries that fit into a width. */
export function fitting(entries: Entry[], size: Size, width: number): Entry[] {
  let left = width + size.gap;
  const first = entries.findLastIndex((entry) => (left -= widthOf(entry, size) + size.gap) < 0);
  return entries.slice(first + 1);
}

const rect = (x: number, y: number, width: number, height: number) => `M${x} ${y}h${width}v${height}h${-width}z`;

function shapeOf(kind: Kind, x: number, width: number, { gap, height }: Size, share: number): string {
  const top = height * (1 - share);
  const tall = height - top;
  const middle = x + width / 2;
  const low = rect(x, height * 0.72, width, height * 0.14);
  const post = Math.min(3, width * 0.4);
  switch (kind) {
    case "failed":
      // Cut at the top, like a bar that broke off.
      return `M${x} ${height}V${top}L${middle} ${top + Math.min(tall / 2, height * 0.35)}L${x + width} ${top}V${height}z`;
    case "retried":
      return rect(x, top, width, tall * 0.4) + rect(x, top + tall * 0.6, width, tall * 0.4);
    case "running":
      return `M${x} ${top}L${x + width} ${top + tall / 2}L${x} ${height}z`;
    case "queued":
      return rect(x, height * 0.55, width, height * 0.45);
    case "skipped":
      return low;
    case "skipped_overlap":
      // Two bars, one above the other, of which each covers a part.
      return rect(x, height * 0.86, width * 0.65, height * 0.14) + rect(x + width * 0.35, height * 0.62, width * 0.65, height * 0.14);
    case "skipped_guard":
      // A post that stands on the bar.
      return low + rect(middle - post / 2, height * 0.38, post, height * 0.34);
    case "skipped_breaker":
      // A contact that is open.
      return rect(x, height * 0.72, width * 0.3, height * 0.14) + rect(x + width * 0.7, height * 0.38, width * 0.3, height * 0.48);
    case "skipped_queue_full":
      return low + rect(x, height * 0.48, width, height * 0.14) + rect(x, height * 0.24, width, height * 0.14);
    case "skipped_retry":
      // Upright at its end: the retry that was still to come.
      return low + rect(x + width - post, height * 0.38, post, height * 0.34);
    case "skipped_request":
      return low + `M${x} ${height * 0.38}h${width}L${middle} ${height * 0.62}z`;
    case "missed": {
      const line = Math.min(1.5, width / 4);
      return rect(x, 0, width, height) + `M${x + line} ${line}v${height - 2 * line}h${width - 2 * line}v${2 * line - height}z`;
    }
    case "coalesced":
      return rect(x, height * 0.85, width + gap, height * 0.15) + rect(x, height * 0.45, Math.min(2, width), height * 0.4);
    case "cancelled":
      return `M${x} ${height}L${x + width} ${height}L${middle} ${height * 0.4}z`;
    case "expected":
      return rect(middle - 1, height * 0.4, 2, height * 0.2);
    default:
      return rect(x, top, width, tall);
  }
}
