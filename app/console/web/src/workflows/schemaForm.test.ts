import { expect, test } from "vitest";
import { fieldsOf, withValue } from "./schemaForm";

test("each property has the field that fits it", () => {
  const fields = fieldsOf({
    properties: {
      url: { type: "string", description: "Where to." },
      method: { enum: ["GET", "POST"] },
      seconds: { anyOf: [{ type: "number" }, { type: "null" }] },
      wait: { type: "boolean" },
      headers: { type: "object" },
      status: { anyOf: [{ type: "integer" }, { type: "array" }] },
      auth: { $ref: "#/$defs/Auth" },
    },
    required: ["url"],
    $defs: { Auth: { type: "string" } },
  });
  expect(fields.map((field) => [field.name, field.kind])).toEqual([
    ["url", "text"],
    ["method", "choice"],
    ["seconds", "number"],
    ["wait", "boolean"],
    ["headers", "json"],
    ["status", "json"],
    ["auth", "text"],
  ]);
  expect(fields[0]).toMatchObject({ required: true, description: "Where to." });
});

test("a schema that is itself a reference is followed, and one without properties has no fields", () => {
  expect(fieldsOf({ $ref: "#/$defs/A", $defs: { A: { properties: { a: { type: "string" } } } } })).toHaveLength(1);
  expect(fieldsOf({})).toEqual([]);
});

test("an empty value is removed", () => {
  expect(withValue({ a: 1, b: 2 }, "a", "")).toEqual({ b: 2 });
  expect(withValue({ b: 2 }, "a", false)).toEqual({ b: 2, a: false });
});
