import { expect, test } from "vitest";
import { begun, changed, differences, freshId, redone, undone, withEdge, withNode, withoutNode, type Graph } from "./graph";

const graph: Graph = {
  name: "g",
  nodes: [
    { id: "start", type: "trigger_schedule", config: {} },
    { id: "call", type: "core.http_request", config: {} },
    { id: "log", type: "core.log", config: {} },
  ],
  edges: [
    { from: "start", to: "call" },
    { from: "call", to: "log" },
  ],
};

test("a new step follows the picked one and has an id of its own", () => {
  const added = withNode(graph, "core.log", "call");
  expect(added.id).toBe("log2");
  expect(added.graph.edges.at(-1)).toEqual({ from: "call", to: "log2" });
  expect(freshId({ ...graph, nodes: [] }, "cms.publish page")).toBe("publish_page");
});

test("the steps around a removed one are connected", () => {
  expect(withoutNode(graph, "call").edges).toEqual([{ from: "start", to: "log" }]);
});

test("a loop, a repeated edge and a step onto itself are refused", () => {
  expect(withEdge(graph, "log", "start")).toBe(graph);
  expect(withEdge(graph, "start", "call")).toBe(graph);
  expect(withEdge(graph, "call", "call")).toBe(graph);
  expect(withEdge(graph, "start", "log").edges).toHaveLength(3);
});

test("edits are undone and redone in order; an edit after undo drops what was undone", () => {
  const history = changed(changed(begun(1), 2), 3);
  expect(undone(history).present).toBe(2);
  expect(redone(undone(history)).present).toBe(3);
  expect(changed(undone(history), 9).future).toEqual([]);
  expect(undone(begun(1)).present).toBe(1);
  expect(changed(history, 3)).toBe(history);
});

test("two versions of a workflow differ by name, steps and edges", () => {
  const stored = { name: "a", nodes: [{ id: "start", type: "trigger_schedule", config: {} }], edges: [] };
  const work = { id: "work", type: "core.noop", config: {} };
  const edited = { name: "b", nodes: [...stored.nodes, work], edges: [{ from: "start", to: "work" }] };
  expect(differences(stored, edited)).toEqual([
    { part: "name", theirs: "a", yours: "b" },
    { part: "edges", theirs: "", yours: "start → work" },
    { part: "work", theirs: "", yours: "core.noop {}" },
  ]);
  expect(differences(edited, edited)).toEqual([]);
});
