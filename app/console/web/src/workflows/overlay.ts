/** A run laid over the canvas: the state of each step, and the edges that it went along. */

import type { ExecutionDetail, NodeResult } from "../api/types";
import type { Graph } from "./graph";

export interface StepState {
  status: string;
  ms: number | null;
  result: NodeResult | null;
}

/** What a step is called that the run has not reached. */
export const NOT_REACHED = "not_reached";

/** Returns the state of each step of a graph in a run. A trigger has no result of its own: the run itself began there. */
export function statesOf(graph: Graph, run: ExecutionDetail, now: number): Map<string, StepState> {
  const results = new Map(run.nodes.map((result) => [result.node_id, result]));
  return new Map<string, StepState>(
    graph.nodes.map((node) => {
      const result = results.get(node.id);
      if (result) return [node.id, { status: result.status, ms: msOf(result, now), result }];
      const hasBegun = node.type.startsWith("trigger") && run.started_at !== null;
      return [node.id, { status: hasBegun ? "success" : NOT_REACHED, ms: null, result: null }];
    }),
  );
}

function msOf(result: NodeResult, now: number): number {
  const end = result.finished_at ? Date.parse(result.finished_at) : now;
  return Math.max(0, end - Date.parse(result.started_at));
}

/** Returns the steps that a run has results of and the graph does not have any more. */
export function missingSteps(graph: Graph, run: ExecutionDetail): string[] {
  const known = new Set(graph.nodes.map((node) => node.id));
  return run.nodes.map((result) => result.node_id).filter((id) => !known.has(id));
}

/** Returns whether a run went along an edge: both its ends were reached. */
export function wasTaken(states: ReadonlyMap<string, StepState>, from: string, to: string): boolean {
  const isReached = (id: string) => (states.get(id)?.status ?? NOT_REACHED) !== NOT_REACHED;
  return isReached(from) && isReached(to);
}
