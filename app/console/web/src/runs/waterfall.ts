/** The steps of a run on one axis of time. */

import type { NodeResult } from "../api/types";

export interface Bar {
  id: string;
  left: number;
  width: number;
  ms: number | null;
}

/** Returns for each step where it begins and how long it is, in parts of the whole; a step that runs ends now. */
export function barsOf(nodes: NodeResult[], now: number): Bar[] {
  const times = nodes.map((node) => ({
    id: node.node_id,
    from: Date.parse(node.started_at),
    to: node.finished_at ? Date.parse(node.finished_at) : now,
    ended: node.finished_at !== null,
  }));
  const first = Math.min(...times.map((one) => one.from));
  const whole = Math.max(1, ...times.map((one) => one.to - first));
  return times.map((one) => ({
    id: one.id,
    left: (one.from - first) / whole,
    width: Math.max(0.004, (one.to - one.from) / whole),
    ms: one.ended ? one.to - one.from : null,
  }));
}
