import dagre from "@dagrejs/dagre";
import { Background, Controls, Handle, Position, ReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { useMemo } from "react";
import { useTranslations } from "use-intl";
import type { Action } from "../api/types";
import { usePreferences } from "../preferences";
import { withEdge, withoutEdge, withoutNode, type Graph } from "./graph";
import type { NodeError } from "./Editor";

const WIDTH = 190;
const HEIGHT = 60;

type StepData = { title: string; type: string; kind: string; hasError: boolean };
type StepNode = Node<StepData, "step">;

const NODE_TYPES = { step: Step };

export function Canvas(props: {
  graph: Graph;
  actions: Action[];
  errors: NodeError[];
  picked: string | null;
  onPick: (id: string | null) => void;
  onChange: (graph: Graph) => void;
}) {
  const { graph, actions, errors, picked } = props;
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
      },
    };
  });
  const edges: Edge[] = graph.edges.map((edge) => ({
    id: `${edge.from} ${edge.to}`,
    source: edge.from,
    target: edge.to,
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
  return (
    <div className={`step-node kind-of-${data.kind}${selected ? " selected" : ""}${data.hasError ? " wrong" : ""}`}>
      {data.kind === "trigger" ? null : <Handle type="target" position={Position.Left} />}
      <strong>
        {data.kind === "trigger" ? "◷ " : data.hasError ? "▲ " : ""}
        <bdi>{data.title}</bdi>
      </strong>
      <span className="soft small">{data.type}</span>
      <Handle type="source" position={Position.Right} />
    </div>
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
