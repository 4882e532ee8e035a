import { expect, test } from "vitest";
import { MOST_VIEWS, viewsOf, withoutView, withView } from "./views";

const view = (name: string, q = "") => ({ name, q, sort: "" });

test("what is stored and is no view is left out", () => {
  expect(viewsOf(null)).toEqual([]);
  expect(viewsOf("{")).toEqual([]);
  expect(viewsOf('{"name": "x"}')).toEqual([]);
  expect(viewsOf(JSON.stringify([view("a"), null, { name: 1 }, view("b")]))).toEqual([view("a"), view("b")]);
});

test("a view replaces the one with its name, and the oldest makes room", () => {
  expect(withView([view("a"), view("b")], view("a", "status:dead"))).toEqual([view("a", "status:dead"), view("b")]);
  const full = Array.from({ length: MOST_VIEWS }, (_, index) => view(String(index)));
  expect(withView(full, view("new")).map(({ name }) => name).slice(0, 1)).toEqual(["1"]);
  expect(withoutView([view("a"), view("b")], "a")).toEqual([view("b")]);
});
