/** Outcomes by minute as stacked bars, and lateness as two lines on a log axis. The same stands below as tables. */

import { useMemo, useState, type MouseEvent, type ReactNode } from "react";
import { useTranslations } from "use-intl";
import type { LatenessStep, OutcomeStep } from "../api/types";
import type { Kind } from "../strip/marks";
import { Time, useZone } from "../ui/controls";
import { clockText, durationText, instantText } from "../ui/time";
import {
  barsOf,
  countsOf,
  decades,
  lineOf,
  logY,
  placeOf,
  STACK,
  stepAt,
  totalsOf,
  type Counts,
  type Frame,
} from "./series";
import "../strip/strip.css";
import "./charts.css";

const WIDTH = 600;
const HEIGHT = 130;

export interface Range {
  from: number;
  to: number;
  stepMs: number;
}

/** Something that happened at a time, as a mark below the lines. */
export interface ChartEvent {
  at: string;
  text: string;
}

const frameOf = (range: Range): Frame => ({ ...range, width: WIDTH, height: HEIGHT });

export function OutcomeChart({ steps, range }: { steps: OutcomeStep[]; range: Range }) {
  const t = useTranslations("charts");
  const marks = useTranslations("mark");
  const zone = useZone();
  const frame = useMemo(() => frameOf(range), [range]);
  const bars = useMemo(() => barsOf(steps, frame), [steps, frame]);
  const [picked, setPicked] = useState(-1);
  const text = (counts: Counts) =>
    STACK.filter((kind) => counts[kind])
      .map((kind) => `${marks(kind)} ${counts[kind]}`)
      .join(" · ");
  const totals = totalsOf(steps);
  const step = steps[picked];
  return (
    <figure className="chart">
      <Plot
        label={`${t("outcomes")}. ${text(totals) || t("nothing")}`}
        ticks={[
          { y: 0, text: String(bars.most) },
          { y: HEIGHT / 2, text: bars.most > 1 ? String(bars.most / 2) : "" },
          { y: HEIGHT, text: "0" },
        ]}
        range={range}
        onPlace={(x) => setPicked(x === null ? -1 : stepAt(steps, x, frame))}
      >
        {(Object.entries(bars.paths) as [Kind, string][]).map(([kind, path]) => (
          <path key={kind} className={`kind-${kind} area`} d={path} />
        ))}
      </Plot>
      <figcaption className="small">
        {step ? `${clockText(step.at, zone)} ${zone} · ${text(countsOf(step.outcomes))}` : <KindLegend totals={totals} />}
      </figcaption>
      <details>
        <summary className="small">{t("table")}</summary>
        <div className="scroll">
          <table className="plain">
            <tbody>
              {steps.toReversed().map((one) => (
                <tr key={one.at}>
                  <td>
                    <Time at={one.at} />
                  </td>
                  <td>{text(countsOf(one.outcomes))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function KindLegend({ totals }: { totals: Counts }) {
  const t = useTranslations("charts");
  const marks = useTranslations("mark");
  const shown = STACK.filter((kind) => totals[kind]);
  if (shown.length === 0) return <span className="soft">{t("nothing")}</span>;
  return (
    <ul className="legend">
      {shown.map((kind) => (
        <li key={kind}>
          <span className={`swatch kind-${kind}`} aria-hidden="true" />
          {marks(kind)} {totals[kind]}
        </li>
      ))}
    </ul>
  );
}

export function LatenessChart({ steps, range, events }: { steps: LatenessStep[]; range: Range; events: ChartEvent[] }) {
  const t = useTranslations("charts");
  const zone = useZone();
  const frame = useMemo(() => frameOf(range), [range]);
  const axis = useMemo(() => decades(steps), [steps]);
  const top = axis.at(-1) ?? 10;
  const [picked, setPicked] = useState(-1);
  const step = steps[picked] ?? steps.at(-1);
  const text = (one: LatenessStep) => t("late", { p50: durationText(one.p50_ms), p99: durationText(one.p99_ms), count: one.count });
  const near = events.filter((event) => step && Math.abs(Date.parse(event.at) - Date.parse(step.at)) <= range.stepMs);
  return (
    <figure className="chart">
      <Plot
        label={`${t("lateness")}. ${step ? text(step) : t("nothing")}`}
        ticks={axis.map((ms) => ({ y: logY(ms, top, HEIGHT), text: durationText(ms) }))}
        range={range}
        onPlace={(x) => setPicked(x === null ? -1 : stepAt(steps, x, frame))}
      >
        {events.map((event, index) => (
          <line key={index} className="event" x1={placeOf(event.at, frame)} x2={placeOf(event.at, frame)} y1={0} y2={HEIGHT}>
            <title>{event.text}</title>
          </line>
        ))}
        <path className="line p99" d={lineOf(steps, "p99_ms", frame, top)} />
        <path className="line p50" d={lineOf(steps, "p50_ms", frame, top)} />
      </Plot>
      <figcaption className="small">
        {step ? `${clockText(step.at, zone)} ${zone} · ${text(step)}` : <span className="soft">{t("nothing")}</span>}
        {near[0] && picked >= 0 ? ` · ${near[0].text}` : ""}
        <ul className="legend">
          <li>
            <span className="swatch p50" aria-hidden="true" />
            {t("median")}
          </li>
          <li>
            <span className="swatch p99" aria-hidden="true" />
            {t("slowest")}
          </li>
          {events.length ? (
            <li>
              <span className="swatch event" aria-hidden="true" />
              {t("changes", { count: events.length })}
            </li>
          ) : null}
        </ul>
      </figcaption>
      <details>
        <summary className="small">{t("table")}</summary>
        <div className="scroll">
          <table className="plain">
            <tbody>
              {steps.toReversed().map((one) => (
                <tr key={one.at}>
                  <td>
                    <Time at={one.at} />
                  </td>
                  <td>{text(one)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function Plot(props: {
  label: string;
  ticks: { y: number; text: string }[];
  range: Range;
  onPlace: (x: number | null) => void;
  children: ReactNode;
}) {
  const zone = useZone();
  const { from, to } = props.range;
  function onMove(event: MouseEvent<SVGSVGElement>) {
    const box = event.currentTarget.getBoundingClientRect();
    props.onPlace(((event.clientX - box.left) / box.width) * WIDTH);
  }
  return (
    <div className="plot">
      <div className="y-axis" aria-hidden="true">
        {props.ticks.map((tick) => (
          <span key={tick.y} style={{ top: `${(tick.y / HEIGHT) * 100}%` }}>
            {tick.text}
          </span>
        ))}
      </div>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={props.label}
        onMouseMove={onMove}
        onMouseLeave={() => props.onPlace(null)}
      >
        {props.ticks.map((tick) => (
          <line key={tick.y} className="grid" x1={0} x2={WIDTH} y1={tick.y} y2={tick.y} />
        ))}
        {props.children}
      </svg>
      <div className="x-axis" aria-hidden="true">
        {[from, (from + to) / 2, to].map((at) => (
          <span key={at} title={instantText(at, zone)}>
            {clockText(at, zone)}
          </span>
        ))}
      </div>
    </div>
  );
}
