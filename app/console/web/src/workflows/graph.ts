/** Edits of a workflow's graph, each of which returns a new graph; and a history of them. */

import type { Workflow, WorkflowNode } from "../api/types";

export type Graph = Pick<Workflow, "name" | "nodes" | "edges">;

/** Returns an id for a new step: the last part of its type, with a number where it is taken. */
export function freshId(graph: Graph, type: string): string {
  const base = (type.split(".").at(-1) ?? type).replace(/[^A-Za-z0-9_-]/g, "_");
  const taken = new Set(graph.nodes.map((node) => node.id));
  if (!taken.has(base)) return base;
  let number = 2;
  while (taken.has(`${base}${number}`)) number += 1;
  return `${base}${number}`;
}

/** Adds a step, connected to the one that is picked, or else to the last one. */
export function withNode(graph: Graph, type: string, after?: string): { graph: Graph; id: string } {
  const id = freshId(graph, type);
  const from = after ?? graph.nodes.at(-1)?.id;
  return {
    id,
    graph: {
      ...graph,
      nodes: [...graph.nodes, { id, type, config: {} }],
      edges: from ? [...graph.edges, { from, to: id }] : graph.edges,
    },
  };
}

/** Removes a step; what came before it is connected to what came after it. */
export function withoutNode(graph: Graph, id: string): Graph {
  const before = graph.edges.filter((edge) => edge.to === id).map((edge) => edge.from);
  const after = graph.edges.filter((edge) => edge.from === id).map((edge) => edge.to);
  const bridged = before.flatMap((from) => after.map((to) => ({ from, to })));
  const kept = graph.edges.filter((edge) => edge.from !== id && edge.to !== id);
  const known = new Set(kept.map((edge) => `${edge.from} ${edge.to}`));
  return {
    ...graph,
    nodes: graph.nodes.filter((node) => node.id !== id),
    edges: [...kept, ...bridged.filter((edge) => !known.has(`${edge.from} ${edge.to}`))],
  };
}

/** Connects two steps, or leaves the graph as it is if that would be a loop or is there already. */
export function withEdge(graph: Graph, from: string, to: string): Graph {
  const exists = graph.edges.some((edge) => edge.from === from && edge.to === to);
  if (from === to || exists || reaches(graph, to, from)) return graph;
  return { ...graph, edges: [...graph.edges, { from, to }] };
}

export function withoutEdge(graph: Graph, from: string, to: string): Graph {
  return { ...graph, edges: graph.edges.filter((edge) => edge.from !== from || edge.to !== to) };
}

export function withConfig(graph: Graph, id: string, config: WorkflowNode["config"]): Graph {
  return { ...graph, nodes: graph.nodes.map((node) => (node.id === id ? { ...node, config } : node)) };
}

export interface Difference {
  /** The id of a step; `name` and `edges` are those of the workflow. */
  part: string;
  theirs: string;
  yours: string;
}

/** Returns what two versions of a workflow do not have in common; what one of them lacks is blank. */
export function differences(theirs: Graph, yours: Graph): Difference[] {
  const partsOf = (graph: Graph) =>
    new Map([
      ["name", graph.name],
      ...graph.nodes.map(({ id, type, config }) => [id, `${type} ${JSON.stringify(config)}`] as const),
      ["edges", graph.edges.map(({ from, to }) => `${from} → ${to}`).toSorted().join(", ")],
    ]);
  const [their, your] = [partsOf(theirs), partsOf(yours)];
  return [...new Set([...their.keys(), ...your.keys()])]
    .map((part) => ({ part, theirs: their.get(part) ?? "", yours: your.get(part) ?? "" }))
    .filter((one) => one.theirs !== one.yours);
}

function reaches(graph: Graph, from: string, to: string): boolean {
  const seen = new Set([from]);
  const open = [from];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    if (at === to) return true;
    for (const edge of graph.edges) {
      if (edge.from === at && !seen.has(edge.to)) {
        seen.add(edge.to);
        open.push(edge.to);
      }
    }
  }
  return false;
}

export interface History<T> {
  past: T[];
  present: T;
  future: T[];
}

const MOST_STEPS = 100;

export const begun = <T>(present: T): History<T> => ({ past: [], present, future: [] });

export function changed<T>(history: History<T>, present: T): History<T> {
  if (present === history.present) return history;
  return { past: [...history.past, history.present].slice(-MOST_STEPS), present, future: [] };
}

export function undone<T>(history: History<T>): History<T> {
  const present = history.past.at(-1);
  if (present === undefined) return history;
  return { past: history.past.slice(0, -1), present, future: [history.present, ...history.future] };
}

export function redone<T>(history: History<T>): History<T> {
  const [present, ...future] = history.future;
  if (present === undefined) return history;
  return { past: [...history.past, history.present], present, future };
}
