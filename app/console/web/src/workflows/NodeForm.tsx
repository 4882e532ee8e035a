import { useState, type ReactNode } from "react";
import { useTranslations } from "use-intl";
import type { Action, WorkflowNode } from "../api/types";
import type { NodeError } from "./Editor";
import { withConfig, withEdge, withoutEdge, withoutNode, type Graph } from "./graph";
import { fieldsOf, withValue, type FormField } from "./schemaForm";

/** The settings of a step, from the schema of its action, and what it leads to. */
export function NodeForm(props: {
  node: WorkflowNode;
  graph: Graph;
  action: Action | undefined;
  errors: NodeError[];
  onChange: (graph: Graph) => void;
  onRemoved: () => void;
  children?: ReactNode;
}) {
  const { node, graph, action, errors, onChange } = props;
  const t = useTranslations("workflows");
  const fields = action ? fieldsOf(action.config_schema) : [];
  const set = (name: string, value: unknown) => onChange(withConfig(graph, node.id, withValue(node.config, name, value)));
  return (
    <section className="card stack workflow-form" aria-label={t("config", { id: node.id })}>
      <div>
        <h2>
          <bdi>{node.id}</bdi>
        </h2>
        <p className="soft small">{action?.description ?? node.type}</p>
      </div>
      {props.children}
      {fields.map((field) => (
        <ConfigField
          key={field.name}
          field={field}
          value={node.config[field.name]}
          error={errors.find((error) => error.field === field.name)?.message}
          onChange={(value) => set(field.name, value)}
        />
      ))}
      <fieldset className="field">
        <legend>{t("connect")}</legend>
        {graph.nodes
          .filter((other) => other.id !== node.id)
          .map((other) => {
            const connected = graph.edges.some((edge) => edge.from === node.id && edge.to === other.id);
            return (
              <label key={other.id} className="row">
                <input
                  type="checkbox"
                  checked={connected}
                  onChange={() =>
                    onChange((connected ? withoutEdge : withEdge)(graph, node.id, other.id))
                  }
                />
                <bdi>{other.id}</bdi>
              </label>
            );
          })}
      </fieldset>
      <div className="actions">
        <button
          type="button"
          className="danger"
          onClick={() => {
            onChange(withoutNode(graph, node.id));
            props.onRemoved();
          }}
        >
          {t("remove")}
        </button>
      </div>
    </section>
  );
}

function ConfigField(props: {
  field: FormField;
  value: unknown;
  error: string | undefined;
  onChange: (value: unknown) => void;
}) {
  const { field, value, error, onChange } = props;
  const t = useTranslations("workflows");
  return (
    <label className="field">
      <span>
        {field.name}
        {field.required ? <span className="soft small"> ({t("fieldMissing")})</span> : null}
      </span>
      <Input field={field} value={value} onChange={onChange} />
      {field.description ? <span className="soft small">{field.description}</span> : null}
      {error ? (
        <span className="error small" role="alert">
          {error}
        </span>
      ) : null}
    </label>
  );
}

function Input({ field, value, onChange }: { field: FormField; value: unknown; onChange: (value: unknown) => void }) {
  const text = value === undefined || value === null ? "" : String(value);
  switch (field.kind) {
    case "boolean":
      return <input type="checkbox" checked={value === true} onChange={(event) => onChange(event.target.checked)} />;
    case "choice":
      return (
        <select value={text} onChange={(event) => onChange(event.target.value)}>
          <option value="" />
          {field.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      );
    case "number":
      return (
        <input
          inputMode="decimal"
          value={text}
          onChange={(event) => {
            const number = Number(event.target.value);
            onChange(event.target.value === "" || Number.isNaN(number) ? event.target.value : number);
          }}
        />
      );
    case "json":
      return <JsonInput value={value} onChange={onChange} />;
    default:
      return <input value={text} onChange={(event) => onChange(event.target.value)} />;
  }
}

/** A value as JSON; what is not JSON yet stays in the field and is not taken over. */
function JsonInput({ value, onChange }: { value: unknown; onChange: (value: unknown) => void }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const [invalid, setInvalid] = useState(false);
  return (
    <textarea
      rows={3}
      spellCheck={false}
      aria-invalid={invalid}
      value={text}
      onChange={(event) => {
        setText(event.target.value);
        try {
          onChange(event.target.value.trim() === "" ? undefined : JSON.parse(event.target.value));
          setInvalid(false);
        } catch {
          setInvalid(true);
        }
      }}
    />
  );
}
