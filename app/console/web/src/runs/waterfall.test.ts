import { expect, test } from "vitest";
import { barsOf } from "./waterfall";

const node = (node_id: string, started_at: string, finished_at: string | null) => ({
  node_id,
  started_at,
  finished_at,
  type: "core.noop",
  status: "success",
  output: null,
  error: "",
});

test("steps share one axis, and a running step ends now", () => {
  const bars = barsOf(
    [
      node("a", "2026-11-18T00:00:00Z", "2026-11-18T00:00:05Z"),
      node("b", "2026-11-18T00:00:05Z", null),
    ],
    Date.parse("2026-11-18T00:00:10Z"),
  );
  expect(bars).toEqual([
    { id: "a", left: 0, width: 0.5, ms: 5000 },
    { id: "b", left: 0.5, width: 0.5, ms: null },
  ]);
});

test("a step that took no time can still be seen", () => {
  const [bar] = barsOf([node("a", "2026-11-18T00:00:00Z", "2026-11-18T00:00:00Z")], 0);
  expect(bar?.width).toBeGreaterThan(0);
});
