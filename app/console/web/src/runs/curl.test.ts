import { expect, test } from "vitest";
import { curlOf } from "./curl";

test("a call is one line for a shell, and what it sends cannot leave its quotes", () => {
  expect(curlOf("POST", "http://a/b", { note: "it's $HOME" })).toBe(
    `curl -X POST 'http://a/b' -H "Authorization: Bearer $CARILLON_TOKEN" ` +
      `-H 'Content-Type: application/json' -d '{"note":"it'\\''s $HOME"}'`,
  );
  expect(curlOf("GET", "http://a/b")).not.toContain("-d");
});
