import { expect, test } from "vitest";
import de from "./de";
import en from "./en";

type Tree = { [key: string]: string | Tree };

function flat(tree: Tree, prefix = ""): [string, string][] {
  return Object.entries(tree).flatMap(([key, value]) =>
    typeof value === "string" ? [[prefix + key, value]] : flat(value, `${prefix}${key}.`),
  ) as [string, string][];
}

const placeholders = (text: string) => [...text.matchAll(/\{(\w+)[,}]/g)].map((match) => match[1]).sort();

test("German has every text, with the same placeholders", () => {
  const german = new Map(flat(de));
  for (const [key, text] of flat(en)) expect([key, placeholders(german.get(key) ?? "")]).toEqual([key, placeholders(text)]);
});
