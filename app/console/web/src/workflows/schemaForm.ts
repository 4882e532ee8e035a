/** Which field of a form fits a property of a JSON Schema. */

type Schema = Record<string, unknown>;

export interface FormField {
  name: string;
  kind: "text" | "number" | "boolean" | "choice" | "json";
  choices: string[];
  required: boolean;
  description: string;
}

/** Returns the fields for the properties of an object's schema; what no simple field fits is edited as JSON. */
export function fieldsOf(schema: Schema): FormField[] {
  const resolved = resolve(schema, schema);
  const properties = (resolved.properties ?? {}) as Record<string, Schema>;
  const required = (resolved.required ?? []) as string[];
  return Object.entries(properties).map(([name, raw]) => {
    const property = resolve(raw, schema);
    return {
      name,
      ...kindOf(property, schema),
      required: required.includes(name),
      description: String(property.description ?? ""),
    };
  });
}

function resolve(schema: Schema, root: Schema): Schema {
  const reference = schema.$ref;
  if (typeof reference !== "string") return schema;
  const found = reference
    .replace(/^#\//, "")
    .split("/")
    .reduce<unknown>((value, key) => (value as Schema | undefined)?.[key], root);
  return (found as Schema | undefined) ?? {};
}

function kindOf(schema: Schema, root: Schema): Pick<FormField, "kind" | "choices"> {
  if (Array.isArray(schema.enum)) return { kind: "choice", choices: schema.enum.map(String) };
  const options = ((schema.anyOf ?? schema.oneOf ?? []) as Schema[])
    .map((one) => resolve(one, root))
    .filter((one) => one.type !== "null");
  if (options.length === 1 && options[0]) return kindOf(options[0], root);
  switch (schema.type) {
    case "string":
      return { kind: "text", choices: [] };
    case "integer":
    case "number":
      return { kind: "number", choices: [] };
    case "boolean":
      return { kind: "boolean", choices: [] };
    default:
      return { kind: "json", choices: [] };
  }
}

/** Returns a config with one value set; an empty one is removed, so that the server's default holds. */
export function withValue(config: Schema, name: string, value: unknown): Schema {
  const { [name]: _removed, ...others } = config;
  return value === undefined || value === "" ? others : { ...others, [name]: value };
}
