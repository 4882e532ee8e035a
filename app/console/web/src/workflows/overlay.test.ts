import { expect, test } from "vitest";
import type { ExecutionDetail } from "../api/types";
import { missingSteps, statesOf, wasTaken } from "./overlay";

const GRAPH = {
  name: "w",
  nodes: ["start", "call", "after"].map((id) => ({ id, type: id === "start" ? "trigger_schedule" : "core.noop", config: {} })),
  edges: [
    { from: "start", to: "call" },
    { from: "call", to: "after" },
  ],
};
const result = (node_id: string, status: string, started_at: string, finished_at: string | null) => ({
  node_id,
  status,
  started_at,
  finished_at,
  type: "core.noop",
  output: null,
  error: "",
});
const run = {
  status: "failed",
  started_at: "2026-11-18T00:00:00Z",
  nodes: [
    result("call", "failed", "2026-11-18T00:00:00Z", "2026-11-18T00:00:02Z"),
    result("gone", "success", "2026-11-18T00:00:00Z", null),
  ],
} as ExecutionDetail;

test("each step has the state that the run left it in; what was not reached is said", () => {
  const states = statesOf(GRAPH, run, 0);
  expect([...states].map(([id, { status, ms }]) => [id, status, ms])).toEqual([
    ["start", "success", null],
    ["call", "failed", 2000],
    ["after", "not_reached", null],
  ]);
  expect([wasTaken(states, "start", "call"), wasTaken(states, "call", "after")]).toEqual([true, false]);
});

test("a step that runs lasts until now, and steps that are gone from the graph are named", () => {
  const running = { ...run, nodes: [result("call", "running", "2026-11-18T00:00:00Z", null)] };
  expect(statesOf(GRAPH, running, Date.parse("2026-11-18T00:00:05Z")).get("call")?.ms).toBe(5000);
  expect(missingSteps(GRAPH, run)).toEqual(["gone"]);
});
