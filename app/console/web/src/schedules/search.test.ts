import { expect, test } from "vitest";
import { bodyFilterOf, parseSearch, queryOf, searchText, toggled, without } from "./search";

test("filters and words are told apart", () => {
  expect(parseSearch('status:paused owner:mia "invoice run" eu')).toEqual({
    chips: [
      { filter: "status", value: "paused" },
      { filter: "owner", value: "mia" },
    ],
    text: "invoice run eu",
  });
});

test("a colon of a name is no filter", () => {
  expect(parseSearch("http://a/b 12:30")).toEqual({ chips: [], text: "http://a/b 12:30" });
});

test.each(["status:paused nightly", 'owner:"mia may" x', "", "plain words"])("%s survives there and back", (text) => {
  expect(searchText(parseSearch(text))).toBe(text);
});

test("labels repeat, other filters have one value", () => {
  expect(queryOf(parseSearch("label:a=1 label:b=2 workflow:7 x"))).toEqual({
    label: ["a=1", "b=2"],
    workflow_id: "7",
    q: "x",
  });
});

test("a facet sets its filter, another value replaces it, the same removes it", () => {
  const paused = toggled(parseSearch("x"), "status", "paused");
  expect(searchText(paused)).toBe("status:paused x");
  expect(searchText(toggled(paused, "status", "dead"))).toBe("status:dead x");
  expect(searchText(toggled(paused, "status", "paused"))).toBe("x");
});

test("one of several filters is taken away", () => {
  const parsed = parseSearch("label:a=1 label:b=2 host:db.example x");
  expect(searchText(without(parsed, { filter: "label", value: "a=1" }))).toBe("label:b=2 host:db.example x");
});

test("the filter of an operation has numbers where the API wants numbers", () => {
  expect(bodyFilterOf(queryOf(parseSearch("workflow:7 status:paused")))).toEqual({ workflow_id: 7, status: "paused" });
});
