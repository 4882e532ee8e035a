import { expect, test } from "vitest";
import { curlOf, curlOfRequest } from "./curl";

test("a call of the API is one line for a shell, and its address cannot leave its quotes", () => {
  expect(curlOf("POST", "http://a/it's $HOME")).toBe(
    `curl -X POST 'http://a/it'\\''s $HOME' -H "Authorization: Bearer $CARILLON_TOKEN"`,
  );
});

test("the request of a step has its method, headers and body", () => {
  const json = { note: "it's" };
  expect(curlOfRequest({ url: "http://a/b", json, headers: { "X-Key": "{{ secrets.KEY }}" } })).toBe(
    `curl -i -X POST 'http://a/b' -H 'X-Key: {{ secrets.KEY }}' -H 'Content-Type: application/json' ` +
      `--data-raw '{"note":"it'\\''s"}'`,
  );
  expect(curlOfRequest({ url: "http://a/b", method: "GET" })).toBe("curl -i -X GET 'http://a/b'");
  expect(curlOfRequest({ url: "u", body: "@file", headers: {} })).toContain("--data-raw '@file'");
});
