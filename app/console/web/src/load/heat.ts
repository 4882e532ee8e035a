/** The heat of a day: buckets as rows of hours, and how dark each is. */

import type { Forecast } from "../api/types";

export interface HeatCell {
  at: string;
  fires: number;
  /** From 0, nothing, to 1, the peak; on a cube root's scale, so that small loads can be seen beside a large peak. */
  heat: number;
}

export interface HeatRow {
  at: string;
  cells: HeatCell[];
}

const HOUR_MS = 3_600_000;

/** Returns one row for each hour, from the first bucket on. */
export function heatRows(buckets: Forecast["buckets"]): HeatRow[] {
  const most = Math.max(1, ...buckets.map((bucket) => bucket.fires));
  const first = buckets[0] ? Date.parse(buckets[0].at) : 0;
  const rows = new Map<number, HeatRow>();
  for (const bucket of buckets) {
    const hour = Math.floor((Date.parse(bucket.at) - first) / HOUR_MS);
    const row = rows.get(hour) ?? { at: bucket.at, cells: [] };
    row.cells.push({ at: bucket.at, fires: bucket.fires, heat: Math.cbrt(bucket.fires / most) });
    rows.set(hour, row);
  }
  return [...rows.values()];
}

/** How many shades the strip of a group has. */
export const SHADES = 4;

/** Returns the buckets of a group as one path for each shade, a unit wide and high each; the lightest first. */
export function shadesOf(buckets: readonly number[], most: number): string[] {
  const paths = Array.from({ length: SHADES }, () => "");
  buckets.forEach((fires, index) => {
    if (fires <= 0) return;
    const shade = Math.min(SHADES, Math.ceil(Math.cbrt(fires / Math.max(1, most)) * SHADES)) - 1;
    paths[shade] += `M${index} 0h1v1h-1z`;
  });
  return paths;
}

/** Returns the busiest buckets, the busiest first; empty ones are left out. */
export function busiest(buckets: Forecast["buckets"], count: number): Forecast["buckets"] {
  return buckets
    .filter((bucket) => bucket.fires > 0)
    .toSorted((a, b) => b.fires - a.fires)
    .slice(0, count);
}

/** Returns the fires of a bucket, by its time. */
export function firesAt(forecast: Forecast, at: string): number {
  return forecast.buckets.find((bucket) => bucket.at === at)?.fires ?? 0;
}
