import dagre from "@dagrejs/dagre";
import { Background, Controls, Handle, Position, ReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { useMemo } from "react";
import { useTranslations } from "use-intl";
import type { Action } from "../api/types";
import { usePreferences } from "../preferences";
import { Badge, Time } from "../ui/controls";
import { durationText } from "../ui/time";
import { useClock } from "./ClockPanel";
import { withEdge, withoutEdge, withoutNode, type Graph } from "./graph";
import type { NodeError } from "./Editor";
import { wasTaken, type StepState } from "./overlay";

const WIDTH = 190;
const HEIGHT = 60;

type StepData = {
  title: string;
  type: string;
  kind: string;
  hasError: boolean;
  state: StepState | undefined;
  workflow: number | undefined;
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
  const positions = useMemo(() => placed(graph), [graph]);
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
        type: action?.title ?? node.type,
        kind: action?.kind ?? "action",
        hasError: errors.some((error) => error.node === node.id),
        state: states?.get(node.id),
        workflow: props.workflow,
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
        fitView
        fitViewOptions={{ maxZoom: 1 }}
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
  const classes = [
    "step-node",
    `kind-of-${data.kind}`,
    selected ? "selected" : "",
    data.hasError ? "wrong" : "",
    data.state ? `state-${data.state.status}` : "",
  ];
  return (
    <div className={classes.filter(Boolean).join(" ")}>
      {isClock ? null : <Handle type="target" position={Position.Left} />}
      <strong>
        {isClock ? "◷ " : data.hasError ? "▲ " : ""}
        <bdi>{data.title}</bdi>
      </strong>
      {data.state ? (
        <span className="row small">
          <Badge word={data.state.status} kind="status" />
          {data.state.ms === null ? null : <span className="soft">{durationText(data.state.ms)}</span>}
        </span>
      ) : isClock && data.workflow !== undefined ? (
        <Clock workflow={data.workflow} />
      ) : (
        <span className="soft small">{data.type}</span>
      )}
      <Handle type="source" position={Position.Right} />
    </div>
  );
}

/** The next run of the schedules that start the workflow. */
function Clock({ workflow }: { workflow: number }) {
  const t = useTranslations("workflows");
  const { data } = useClock(workflow);
  const next = data?.rows.find((row) => row.next_run_at !== null);
  if (!data) return null;
  return (
    <span className="soft small">
      {t("scheduleCount", { count: data.total })}
      {next ? (
        <>
          <br />
          <Time at={next.next_run_at} zone={next.timezone} relative short />
        </>
      ) : null}
    </span>
  );
}

/** Places steps from left to right in the order in which they run. */
function placed(graph: Graph): Map<string, { x: number; y: number }> {
  const layout = new dagre.graphlib.Graph();
  layout.setGraph({ rankdir: "LR", nodesep: 24, ranksep: 60 });
  layout.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) layout.setNode(node.id, { width: WIDTH, height: HEIGHT });
  for (const edge of graph.edges) layout.setEdge(edge.from, edge.to);
  dagre.layout(layout);
  return new Map(
    graph.nodes.map((node) => {
      const { x, y } = layout.node(node.id) as { x: number; y: number };
      return [node.id, { x: x - WIDTH / 2, y: y - HEIGHT / 2 }];
    }),
  );
}
