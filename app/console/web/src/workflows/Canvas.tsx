import dagre from "@dagrejs/dagre";
import { Background, Controls, Handle, Position, ReactFlow, type Edge, type Node, type NodeProps, type ReactFlowInstance } from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { useEffect, useMemo, useState } from "react";
import { useTranslations } from "use-intl";
import type { Action } from "../api/types";
import { usePreferences } from "../preferences";
import { SmallStrip } from "../strip/Strip";
import { Badge, Sentence, Time } from "../ui/controls";
import { durationText } from "../ui/time";
import { ActionIcon } from "./ActionIcon";
import { ClockActions, useClock, type ClockData } from "./ClockPanel";
import { withEdge, withoutEdge, withoutNode, type Graph } from "./graph";
import type { NodeError } from "./Editor";
import { wasTaken, type StepState } from "./overlay";

interface Box {
  width: number;
  height: number;
}
const STEP: Box = { width: 190, height: 60 };
/** Of a clock that shows a schedule; `workflow.css` has the same. */
const CLOCK: Box = { width: 256, height: 150 };
const FIT = { maxZoom: 1, padding: 0.08 };
/** A strip of 30 slots. */
const STRIP_WIDTH = 212;

type StepData = {
  title: string;
  action: Action | undefined;
  type: string;
  kind: string;
  hasError: boolean;
  state: StepState | undefined;
  clock: ClockData | undefined;
};
type StepNode = Node<StepData, "step">;

const NODE_TYPES = { step: Step };

export function Canvas(props: {
  graph: Graph;
  actions: Action[];
  errors: NodeError[];
  /** How a run left each step, where one is laid over the canvas. */
  states: ReadonlyMap<string, StepState> | undefined;
  workflow: number | undefined;
  picked: string | null;
  onPick: (id: string | null) => void;
  onChange: (graph: Graph) => void;
}) {
  const { graph, actions, errors, picked, states } = props;
  const t = useTranslations("workflows");
  const { theme } = usePreferences();
  const { data: clock } = useClock(props.workflow);
  const isClockOpen = !states && Boolean(clock?.rows.length);
  const positions = useMemo(() => placed(graph, isClockOpen), [graph, isClockOpen]);
  const [flow, setFlow] = useState<ReactFlowInstance<StepNode> | null>(null);
  useEffect(() => {
    // A step that was added, and a clock that has opened, come into view.
    const frame = requestAnimationFrame(() => void flow?.fitView(FIT));
    return () => cancelAnimationFrame(frame);
  }, [flow, isClockOpen, graph.nodes.length]);
  const nodes: StepNode[] = graph.nodes.map((node) => {
    const action = actions.find((one) => one.name === node.type);
    return {
      id: node.id,
      type: "step",
      position: positions.get(node.id) ?? { x: 0, y: 0 },
      selected: node.id === picked,
      draggable: false,
      ariaLabel: `${node.id}, ${action?.title ?? node.type}`,
      data: {
        title: node.id,
        action,
        type: action?.title ?? node.type,
        kind: action?.kind ?? "action",
        hasError: errors.some((error) => error.node === node.id),
        state: states?.get(node.id),
        clock: isTrigger(node.type) ? clock : undefined,
      },
    };
  });
  const edges: Edge[] = graph.edges.map((edge) => ({
    id: `${edge.from} ${edge.to}`,
    source: edge.from,
    target: edge.to,
    className: states ? (wasTaken(states, edge.from, edge.to) ? "taken" : "not-taken") : undefined,
  }));
  return (
    <section className="card workflow-canvas" aria-label={t("canvas")}>
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        onInit={setFlow}
        fitView
        fitViewOptions={FIT}
        proOptions={{ hideAttribution: true }}
        colorMode={theme === "auto" ? "system" : theme === "light" ? "light" : "dark"}
        onNodeClick={(_, node) => props.onPick(node.id)}
        onNodesChange={(changes) => {
          for (const change of changes) if (change.type === "select" && change.selected) props.onPick(change.id);
        }}
        onConnect={({ source, target }) => props.onChange(withEdge(graph, source, target))}
        onNodesDelete={(gone) => props.onChange(gone.reduce((left, node) => withoutNode(left, node.id), graph))}
        onEdgesDelete={(gone) =>
          props.onChange(gone.reduce((left, edge) => withoutEdge(left, edge.source, edge.target), graph))
        }
      >
        <Background />
        <Controls showInteractive={false} />
      </ReactFlow>
    </section>
  );
}

function Step({ data, selected }: NodeProps<StepNode>) {
  const isClock = data.kind === "trigger";
  const { clock } = data;
  const isOpen = isClock && !data.state && Boolean(clock?.rows.length);
  const classes = [
    "step-node",
    `kind-of-${data.kind}`,
    isOpen ? "clock" : "",
    selected ? "selected" : "",
    data.hasError ? "wrong" : "",
    data.state ? `state-${data.state.status}` : "",
  ];
  return (
    <div className={classes.filter(Boolean).join(" ")}>
      {isClock ? null : <Handle type="target" position={Position.Left} />}
      <strong className="step-title">
        <ActionIcon action={data.action} />
        {data.hasError ? "▲ " : ""}
        <bdi>{data.title}</bdi>
      </strong>
      {data.state ? (
        <span className="row small">
          <Badge word={data.state.status} kind="status" />
          {data.state.ms === null ? null : <span className="soft">{durationText(data.state.ms)}</span>}
        </span>
      ) : isClock && clock ? (
        <Clock clock={clock} />
      ) : (
        <span className="soft small">{data.type}</span>
      )}
      <Handle type="source" position={Position.Right} />
    </div>
  );
}

/** The schedule of a clock that is due next: its words, its next run, its slots, and what can be done with it. */
function Clock({ clock }: { clock: ClockData }) {
  const t = useTranslations("workflows");
  const row = clock.rows.find((one) => one.next_run_at !== null) ?? clock.rows[0];
  const count = <span className="soft small">{t("scheduleCount", { count: clock.total })}</span>;
  if (!row) return count;
  const slots = clock.strips[row.id];
  return (
    <>
      <span className="small ellipsis" title={row.name}>
        <Sentence zone={row.timezone}>{row.spec_description}</Sentence>
      </span>
      <span className="row small clock-line">
        {row.next_run_at ? (
          <Time at={row.next_run_at} zone={row.timezone} relative short />
        ) : (
          <Badge word={row.health ?? row.status} kind={row.health ? "health" : "status"} />
        )}
        {clock.total > 1 ? count : null}
      </span>
      {slots ? <SmallStrip slots={slots} name={row.name} width={STRIP_WIDTH} /> : null}
      <div className="nodrag nopan">
        <ClockActions row={row} />
      </div>
    </>
  );
}

const isTrigger = (type: string) => type.startsWith("trigger");

/** Places steps from left to right in the order in which they run. */
function placed(graph: Graph, isClockOpen: boolean): Map<string, { x: number; y: number }> {
  const layout = new dagre.graphlib.Graph();
  layout.setGraph({ rankdir: "LR", nodesep: 24, ranksep: 60 });
  layout.setDefaultEdgeLabel(() => ({}));
  const boxes = new Map(graph.nodes.map((node) => [node.id, isClockOpen && isTrigger(node.type) ? CLOCK : STEP]));
  for (const [id, box] of boxes) layout.setNode(id, { ...box });
  for (const edge of graph.edges) layout.setEdge(edge.from, edge.to);
  dagre.layout(layout);
  return new Map(
    [...boxes].map(([id, { width, height }]) => {
      const { x, y } = layout.node(id) as { x: number; y: number };
      return [id, { x: x - width / 2, y: y - height / 2 }];
    }),
  );
}
