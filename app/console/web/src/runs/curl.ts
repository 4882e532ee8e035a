/** Calls as commands for a shell. */

/** Puts a text into single quotes, in which a shell changes nothing. */
export const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** A call of the API. The token is a variable: the page does not have one. */
export function curlOf(method: string, address: string): string {
  return ["curl", "-X", method, quoted(address), "-H", '"Authorization: Bearer $CARILLON_TOKEN"'].join(" ");
}

/** The request of a step, by its settings. Templates and names of secrets stay as they are written there. */
export function curlOfRequest(config: Record<string, unknown>): string {
  const headers = Object.entries((config.headers ?? {}) as Record<string, string>);
  const parts = ["curl", "-i", "-X", String(config.method ?? "POST"), quoted(String(config.url ?? ""))];
  if (config.json !== undefined && !headers.some(([name]) => name.toLowerCase() === "content-type"))
    headers.push(["Content-Type", "application/json"]);
  for (const [name, value] of headers) parts.push("-H", quoted(`${name}: ${value}`));
  const body = config.json === undefined ? config.body : JSON.stringify(config.json);
  if (body !== undefined) parts.push("--data-raw", quoted(String(body)));
  return parts.join(" ");
}
