import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent } from "react";
import { useTranslations } from "use-intl";
import type { Slot, Slots } from "../api/types";
import { Sentence, Time, useZone } from "../ui/controls";
import { durationText, instantText, readable } from "../ui/time";
import { entriesOf, fitting, KINDS, layoutOf, LETTERS, type Cell, type Entry, type Kind, type Measure, type Size } from "./marks";
import "./strip.css";

const SMALL: Size = { cell: 5, gap: 2, height: 20 };
/** The width of the column in the list. */
const SMALL_WIDTH = 290;
const LARGE: Size = { cell: 12, gap: 3, height: 40 };
const LETTERS_HEIGHT = 14;

/** The strip of a list row: marks only, described by one sentence. */
export function SmallStrip({ slots, name, width = SMALL_WIDTH }: { slots: Slots; name: string; width?: number }) {
  const t = useTranslations("strip");
  const texts = useMarkTexts();
  const entries = useMemo(() => fitting(entriesOf(slots), SMALL, width), [slots, width]);
  if (entries.length === 0) return <span className="soft small">{t("none")}</span>;
  const summary = KINDS.map((kind) => [kind, entries.filter((entry) => entry.kind === kind).length] as const)
    .filter(([, count]) => count > 0)
    .map(([kind, count]) => `${texts.kind(kind)}: ${count}`)
    .join(", ");
  return <Drawing entries={entries} size={SMALL} label={`${t("label", { name })}. ${summary}`} />;
}

/** The strip of a schedule's page: arrow keys move, Enter explains; the same as a table for screen readers. */
export function LargeStrip({
  slots,
  name,
  zone,
  measure = "plain",
  at: explained,
  onExplain,
}: {
  slots: Slots;
  name: string;
  zone: string;
  measure?: Measure;
  /** The slot that is explained: it is marked until another one is. */
  at?: string;
  onExplain: (slot: Slot) => void;
}) {
  const t = useTranslations("strip");
  const texts = useMarkTexts(zone);
  const entries = useMemo(() => entriesOf(slots), [slots]);
  const cells = useMemo(() => layoutOf(entries, LARGE, measure).cells, [entries, measure]);
  const last = entries.findLastIndex((entry) => entry.slot && entry.kind !== "expected");
  const shown = explained ? entries.findIndex((entry) => entry.slot && covers(entry.slot, explained)) : -1;
  const newest = shown < 0 ? last : shown;
  const [picked, setPicked] = useState<number | null>(null);
  useEffect(() => setPicked(null), [explained]);
  const at = Math.min(picked ?? Math.max(newest, 0), entries.length - 1);
  const entry = entries[at];
  const frame = useRef<HTMLDivElement>(null);
  const cell = cells[at];
  useEffect(() => {
    // The marked slot stays in view: at first the newest, later wherever the keys lead.
    const element = frame.current;
    if (!element || !cell) return;
    if (cell.x < element.scrollLeft) element.scrollLeft = cell.x;
    const end = cell.x + cell.width + 12 - element.clientWidth;
    if (end > element.scrollLeft) element.scrollLeft = end;
  }, [cell]);
  if (!entry) return <p className="soft">{t("none")}</p>;

  function onKey(event: KeyboardEvent) {
    const moves: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: entries.length - 1 };
    const target = moves[event.key];
    if (target !== undefined) {
      event.preventDefault();
      setPicked(Math.max(0, Math.min(entries.length - 1, target)));
    } else if (event.key === "Enter" && entry?.slot) {
      event.preventDefault();
      onExplain(entry.slot);
    }
  }
  function onClick(event: MouseEvent<SVGSVGElement>) {
    const index = cellAt(cells, event.clientX - event.currentTarget.getBoundingClientRect().left);
    if (index === null) return;
    setPicked(index);
    const clicked = entries[index];
    if (clicked?.slot) onExplain(clicked.slot);
  }
  return (
    <div className="tight">
      <div
        className="strip-frame"
        ref={frame}
        role="slider"
        tabIndex={0}
        aria-label={t("label", { name })}
        aria-orientation="horizontal"
        aria-valuemin={1}
        aria-valuemax={entries.length}
        aria-valuenow={at + 1}
        aria-valuetext={texts.entry(entry)}
        onKeyDown={onKey}
      >
        <Drawing entries={entries} size={LARGE} measure={measure} cursor={at} onClick={onClick} letters />
      </div>
      <p className="small" aria-hidden="true">
        {texts.entry(entry)}
      </p>
      <Legend entries={entries} />
      <SlotTable entries={entries} zone={zone} onExplain={onExplain} />
    </div>
  );
}

/** Returns whether an entry is the slot of a time, or a range that has it. */
function covers(slot: Slot, at: string): boolean {
  const moment = Date.parse(at);
  return Date.parse(slot.from ?? slot.slot) <= moment && moment <= Date.parse(slot.to ?? slot.slot);
}

function cellAt(cells: Cell[], x: number): number | null {
  const index = cells.findIndex((cell) => x >= cell.x - 2 && x <= cell.x + cell.width + 2);
  return index < 0 ? null : index;
}

function Drawing(props: {
  entries: Entry[];
  size: Size;
  measure?: Measure;
  label?: string;
  cursor?: number;
  letters?: boolean;
  onClick?: (event: MouseEvent<SVGSVGElement>) => void;
}) {
  const { entries, size, measure = "plain", cursor, letters } = props;
  const pattern = useId();
  const layout = useMemo(() => layoutOf(entries, size, measure), [entries, size, measure]);
  const height = size.height + (letters ? LETTERS_HEIGHT : 0);
  const marked = cursor === undefined ? undefined : layout.cells[cursor];
  return (
    <svg
      className="strip"
      width={layout.width + 4}
      height={height}
      viewBox={`-2 0 ${layout.width + 4} ${height}`}
      role={props.label ? "img" : undefined}
      aria-label={props.label}
      aria-hidden={props.label ? undefined : true}
      onClick={props.onClick}
    >
      {layout.spans.length ? <Hatching id={pattern} /> : null}
      {layout.spans.map((span) => (
        <rect key={span.x} x={span.x} y={0} width={span.width} height={size.height} fill={`url(#${pattern})`} />
      ))}
      {Object.entries(layout.paths).map(([kind, path]) => (
        <path key={kind} className={`kind-${kind}`} d={path} />
      ))}
      {layout.nowX === null ? null : <line className="now" x1={layout.nowX} x2={layout.nowX} y1={0} y2={size.height} />}
      {letters ? (
        <g className="letters">
          {layout.cells.map((cell) =>
            cell.entry.slot ? (
              <text key={cell.x} x={cell.x + cell.width / 2} y={height - 3}>
                {(cell.entry.slot.count ?? 1) > 1 ? cell.entry.slot.count : LETTERS[cell.entry.kind]}
              </text>
            ) : null,
          )}
        </g>
      ) : null}
      {marked ? (
        <rect className="cursor" x={marked.x - 2} y={-1} width={marked.width + 4} height={size.height + 2} rx={2} />
      ) : null}
    </svg>
  );
}

/** Texts for marks; an outcome that this page does not know is shown by its name. */
function useMarkTexts(zone?: string) {
  const t = useTranslations("strip");
  const kinds = useTranslations("mark");
  const shownIn = useZone(zone);
  const kind = (one: Kind) => kinds(one);
  const outcome = (slot: Slot, one: Kind) => {
    if (one === "other") return slot.status ?? slot.outcome;
    // A reason to skip that this page does not know.
    return one === "skipped" && slot.outcome.startsWith("skipped_") ? slot.outcome.replaceAll("_", " ") : kind(one);
  };
  const span = (word: string) => (word === "paused" ? t("paused") : word === "disabled" ? t("disabledSpan") : word);
  function entry(one: Entry): string {
    if (one.span) {
      const word = span(one.span.kind);
      const by = [one.span.by, one.span.note].filter(Boolean).join(": ");
      return `${word}, ${instantText(one.span.from, shownIn)}${one.span.to ? ` – ${instantText(one.span.to, shownIn)}` : ""}${by ? `, ${by}` : ""}`;
    }
    const { slot } = one;
    const parts = [instantText(slot.from ?? slot.slot, shownIn), outcome(slot, one.kind)];
    if ((slot.count ?? 1) > 1) parts.push(t("range", { count: slot.count ?? 1 }));
    if (slot.reason) parts.push(readable(slot.reason, shownIn));
    if (slot.lateness_ms) parts.push(t("late", { ms: slot.lateness_ms }));
    if (slot.duration_ms !== null && slot.duration_ms !== undefined) parts.push(durationText(slot.duration_ms));
    return parts.join(" · ");
  }
  return { kind, outcome, span, entry };
}

/** The marks that this strip has, each with its shape, letter and word. */
function Legend({ entries }: { entries: Entry[] }) {
  const t = useTranslations("strip");
  const texts = useMarkTexts();
  const pattern = useId();
  const sample: Slot = { slot: "2000-01-01T00:00:00Z", outcome: "" };
  const spans = new Set(entries.flatMap((entry) => (entry.span ? [entry.span.kind] : [])));
  return (
    <ul className="legend" aria-label={t("legend")}>
      {KINDS.filter((kind) => kind !== "other" && entries.some((entry) => entry.kind === kind)).map((kind) => (
        <li key={kind}>
          <svg width={14} height={16} viewBox="-2 0 14 16" aria-hidden="true">
            <path
              className={`kind-${kind}`}
              d={layoutOf([{ slot: sample, kind }], { cell: 10, gap: 2, height: 16 }).paths[kind]}
            />
          </svg>
          <span className="letter" aria-hidden="true">
            {LETTERS[kind]}
          </span>
          {texts.kind(kind)}
        </li>
      ))}
      {[...spans].map((kind) => (
        <li key={kind}>
          <svg className="strip" width={14} height={16} aria-hidden="true">
            <Hatching id={`${pattern}${kind}`} />
            <rect width={14} height={16} fill={`url(#${pattern}${kind})`} />
          </svg>
          {texts.span(kind)}
        </li>
      ))}
    </ul>
  );
}

function Hatching({ id }: { id: string }) {
  return (
    <pattern id={id} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <line className="hatch" x1="0" y1="0" x2="0" y2="5" />
    </pattern>
  );
}

function SlotTable({
  entries,
  zone,
  onExplain,
}: {
  entries: Entry[];
  zone: string;
  onExplain: (slot: Slot) => void;
}) {
  const t = useTranslations("strip");
  const texts = useMarkTexts(zone);
  return (
    <details>
      <summary>{t("table")}</summary>
      <div className="scroll">
        <table className="plain">
          <thead>
            <tr>
              <th scope="col">{t("slot")}</th>
              <th scope="col">{t("outcome")}</th>
              <th scope="col">{t("reason")}</th>
            </tr>
          </thead>
          <tbody>
            {entries.toReversed().map((entry) =>
              entry.slot ? (
                <tr key={`${entry.slot.slot}${entry.slot.outcome}`}>
                  <td>
                    <button type="button" className="plain" onClick={() => onExplain(entry.slot)}>
                      <Time at={entry.slot.slot} zone={zone} />
                    </button>
                  </td>
                  <td>
                    {texts.outcome(entry.slot, entry.kind)}
                    {(entry.slot.count ?? 1) > 1 ? ` × ${entry.slot.count}` : ""}
                  </td>
                  <td>
                    <Sentence zone={zone}>{entry.slot.reason ?? ""}</Sentence>
                  </td>
                </tr>
              ) : (
                <tr key={`${entry.span.kind}${entry.span.from}`}>
                  <td colSpan={3}>{texts.entry(entry)}</td>
                </tr>
              ),
            )}
          </tbody>
        </table>
      </div>
    </details>
  );
}
