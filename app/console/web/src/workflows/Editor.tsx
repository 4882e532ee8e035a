/** The workflow editor: a canvas, a palette, and a form for the picked step. All of it works by keyboard, too. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useTranslations } from "use-intl";
import { executions, workflows } from "../api/client";
import { ApiError, NotSupportedError } from "../api/http";
import type { Action, Workflow } from "../api/types";
import { Events } from "../audit/Events";
import { Charts } from "../overview/Charts";
import { RunTable } from "../runs/RunTable";
import { usePageKeys } from "../shell/shortcuts";
import { Missing } from "../shell/Shell";
import { Loaded, Loading, Name, Problem, ScopedButton, useToast } from "../ui/controls";
import { ActionIcon } from "./ActionIcon";
import { Canvas } from "./Canvas";
import { ClockPanel } from "./ClockPanel";
import { NodeForm } from "./NodeForm";
import { RunChooser, StepResult, useOverlay } from "./RunOverlay";
import { begun, changed, differences, redone, undone, withNode, type Graph } from "./graph";
import "./workflow.css";

const route = getRouteApi("/workflows/$id");
const NEW = "new";

export default function WorkflowPage() {
  const { id } = route.useParams();
  const { tab = "canvas" } = route.useSearch();
  const t = useTranslations("workflows");
  const isNew = id === NEW;
  const query = useQuery({ queryKey: ["workflow", id], queryFn: () => workflows.read(Number(id)), enabled: !isNew });
  const actions = useQuery({ queryKey: ["actions"], queryFn: workflows.actions, staleTime: 60_000 });
  if (query.error instanceof ApiError && [404, 422].includes(query.error.status)) return <Missing />;
  if (query.error && !query.data) return <Problem error={query.error} retry={() => void query.refetch()} />;
  if (!isNew && !query.data) return <Loading />;
  const empty: Graph = {
    name: t("firstName"),
    nodes: [{ id: "start", type: "trigger_schedule", config: {} }],
    edges: [],
  };
  const stored = query.data?.value;
  return (
    <>
      {stored ? <Tabs stored={stored} tab={tab} /> : null}
      {stored && tab !== "canvas" ? <Record stored={stored} tab={tab} /> : null}
      <div hidden={tab !== "canvas"}>
        <Loaded query={actions}>
          {({ items }) => <Editor key={id} graph={stored ?? empty} stored={stored} etag={query.data?.etag} actions={items} />}
        </Loaded>
      </div>
    </>
  );
}

const TABS = ["canvas", "runs", "figures", "history"] as const;

function Tabs({ stored, tab }: { stored: Workflow; tab: string }) {
  const t = useTranslations("workflows");
  return (
    <nav className="tabs workflow-tabs" aria-label={stored.name}>
      {TABS.map((name) => (
        <Link
          key={name}
          to="/workflows/$id"
          params={{ id: String(stored.id) }}
          search={{ tab: name === "canvas" ? undefined : name }}
          aria-current={tab === name ? "page" : undefined}
          activeProps={{}}
          activeOptions={{ exact: true, includeSearch: true }}
        >
          {t(name)}
        </Link>
      ))}
    </nav>
  );
}

/** What happened to a workflow: its runs, its figures, its changes. The canvas stays as it is meanwhile. */
function Record({ stored, tab }: { stored: Workflow; tab: string }) {
  return (
    <div className="page">
      <h1>
        <Name>{stored.name}</Name>
      </h1>
      {tab === "runs" ? <WorkflowRuns id={stored.id} /> : null}
      {tab === "figures" ? <Charts workflow={stored.id} /> : null}
      {tab === "history" ? (
        <div className="card">
          <Events filter={{ object_type: "workflow", object_id: stored.id }} />
        </div>
      ) : null}
    </div>
  );
}

const RUNS_MS = 5000;

function WorkflowRuns({ id }: { id: number }) {
  const t = useTranslations("schedule");
  const query = useQuery({
    queryKey: ["workflow-runs", id],
    queryFn: () => executions.list({ workflow_id: id, limit: 20 }),
    refetchInterval: RUNS_MS,
  });
  return (
    <div className="card">
      <Loaded query={query}>
        {(page) => (page.items.length ? <RunTable runs={page.items} withSchedule /> : <p className="soft">{t("noRuns")}</p>)}
      </Loaded>
    </div>
  );
}

interface Conflict {
  theirs: Workflow;
  etag: string | null;
}

export interface NodeError {
  node: string | null;
  field: string | null;
  message: string;
}

function Editor(props: { graph: Graph; stored?: Workflow; etag?: string | null; actions: Action[] }) {
  const t = useTranslations();
  const toast = useToast();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [history, setHistory] = useState(() => begun<Graph>({ name: props.graph.name, nodes: props.graph.nodes, edges: props.graph.edges }));
  const [picked, setPicked] = useState<string | null>(props.graph.nodes[0]?.id ?? null);
  const [errors, setErrors] = useState<NodeError[]>([]);
  const [problem, setProblem] = useState<unknown>(null);
  const [etag, setEtag] = useState(props.etag);
  const [conflict, setConflict] = useState<Conflict | null>(null);
  const graph = history.present;
  const change = (next: Graph) => setHistory((before) => changed(before, next));
  usePageKeys({ u: () => setHistory(undone) });

  async function save(known = etag) {
    setProblem(null);
    try {
      const checked = await workflows.validate(graph).catch((error: unknown) => {
        if (error instanceof NotSupportedError) return null;
        throw error;
      });
      setErrors(checked?.errors ?? []);
      if (checked && !checked.valid) return;
      if (props.stored) {
        const answer = await workflows.change(props.stored.id, graph, known);
        setEtag(answer.etag);
        setConflict(null);
      } else {
        const made = await workflows.create(graph);
        await navigate({ to: "/workflows/$id", params: { id: String(made.id) } });
      }
      toast(t("workflows.saved"));
      await client.invalidateQueries({ queryKey: ["workflows"] });
    } catch (error) {
      if (props.stored && error instanceof ApiError && error.status === 412) {
        const latest = await workflows.read(props.stored.id);
        setConflict({ theirs: latest.value, etag: latest.etag });
        return;
      }
      setProblem(error);
      if (error instanceof ApiError) setErrors(error.errors.map((one) => nodeErrorOf(one, graph)));
    }
  }
  const node = graph.nodes.find((one) => one.id === picked);
  const { run: runId } = route.useSearch();
  const overlay = useOverlay(graph, props.stored ? runId : undefined);
  const isTrigger = node?.type.startsWith("trigger") ?? false;
  return (
    <div className="page workflow">
      <h1 className="visually-hidden">{graph.name}</h1>
      <div className="head">
        <label className="field">
          <span className="visually-hidden">{t("workflows.name")}</span>
          <input
            className="workflow-name"
            value={graph.name}
            maxLength={255}
            onChange={(event) => change({ ...graph, name: event.target.value })}
          />
        </label>
        <div className="actions">
          <button type="button" disabled={history.past.length === 0} onClick={() => setHistory(undone)}>
            {t("workflows.undo")}
          </button>
          <button type="button" disabled={history.future.length === 0} onClick={() => setHistory(redone)}>
            {t("workflows.redo")}
          </button>
          <ScopedButton needs="write" className="primary" onClick={() => void save()}>
            {t("app.save")}
          </ScopedButton>
        </div>
      </div>
      {problem ? <Problem error={problem} /> : null}
      {conflict ? (
        <ConflictView
          theirs={conflict.theirs}
          yours={graph}
          onTheirs={() => {
            const { name, nodes, edges } = conflict.theirs;
            change({ name, nodes, edges });
            setEtag(conflict.etag);
            setConflict(null);
          }}
          onMine={() => void save(conflict.etag)}
        />
      ) : null}
      {errors.length ? (
        <ul className="note bad" role="alert">
          {errors.map((error, index) => (
            <li key={index}>
              {[error.node, error.field].filter(Boolean).join(" · ")} {error.message}
            </li>
          ))}
        </ul>
      ) : null}
      {props.stored ? (
        <RunChooser workflow={props.stored.id} graph={graph} run={overlay.run} id={runId} error={overlay.error} />
      ) : null}
      <div className="workflow-panes">
        <Palette
          actions={props.actions}
          onAdd={(type) => {
            const added = withNode(graph, type, picked ?? undefined);
            change(added.graph);
            setPicked(added.id);
          }}
        />
        <Canvas
          graph={graph}
          actions={props.actions}
          errors={errors}
          states={overlay.states}
          workflow={props.stored?.id}
          picked={picked}
          onPick={setPicked}
          onChange={change}
        />
        {node && overlay.run ? (
          <StepResult id={node.id} state={overlay.states?.get(node.id)} />
        ) : node ? (
          <NodeForm
            key={node.id}
            node={node}
            graph={graph}
            action={props.actions.find((one) => one.name === node.type)}
            errors={errors.filter((error) => error.node === node.id)}
            onChange={change}
            onRemoved={() => setPicked(null)}
          >
            {isTrigger && props.stored ? <ClockPanel workflow={props.stored.id} /> : null}
          </NodeForm>
        ) : (
          <p className="soft card">{t("workflows.pick")}</p>
        )}
      </div>
    </div>
  );
}

/** What is stored meanwhile beside what is on the canvas. Taking theirs can be undone. */
function ConflictView(props: { theirs: Graph; yours: Graph; onTheirs: () => void; onMine: () => void }) {
  const t = useTranslations();
  return (
    <div className="note warn stack" role="alert">
      <strong>{t("workflows.conflict")}</strong>
      <table className="plain">
        <thead>
          <tr>
            <td />
            <th scope="col">{t("editor.theirs")}</th>
            <th scope="col">{t("editor.yours")}</th>
          </tr>
        </thead>
        <tbody>
          {differences(props.theirs, props.yours).map(({ part, theirs, yours }) => (
            <tr key={part}>
              <th scope="row">
                <Name>{part}</Name>
              </th>
              <td>
                <Name>{theirs || "–"}</Name>
              </td>
              <td>
                <Name>{yours || "–"}</Name>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div className="actions">
        <button type="button" onClick={props.onTheirs}>
          {t("editor.takeTheirs")}
        </button>
        <ScopedButton needs="write" className="primary" onClick={props.onMine}>
          {t("editor.overwrite")}
        </ScopedButton>
      </div>
    </div>
  );
}

/** Finds the step in the path of a field, such as `nodes[1].config.url`. */
function nodeErrorOf(error: { field: string; message: string }, graph: Graph): NodeError {
  const [, index, field] = /^nodes[.[](\d+)\]?\.?(.*)$/.exec(error.field) ?? [];
  const node = index === undefined ? undefined : graph.nodes[Number(index)];
  return { node: node?.id ?? null, field: (field || error.field).replace(/^config\./, ""), message: error.message };
}

/** The steps that can be added, by their groups. Tools that change schedules are marked. */
function Palette({ actions, onAdd }: { actions: Action[]; onAdd: (type: string) => void }) {
  const t = useTranslations("workflows");
  const groups = Map.groupBy(actions, (action) => action.category || action.kind);
  return (
    <section className="card stack workflow-palette" aria-label={t("palette")}>
      <h2>{t("palette")}</h2>
      {[...groups].map(([group, found]) => (
        <div key={group} className="tight">
          <h3 className="soft small">{group}</h3>
          {found.map((action) => (
            <button
              key={action.name}
              type="button"
              className="palette-item"
              title={action.description}
              onClick={() => onAdd(action.name)}
            >
              <ActionIcon action={action} />
              {action.title}
            </button>
          ))}
        </div>
      ))}
    </section>
  );
}
