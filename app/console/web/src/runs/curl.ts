/** Calls of the API as commands for a shell. The token is a variable: the page does not have one. */

/** Puts a text into single quotes, in which a shell changes nothing. */
export const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

export function curlOf(method: string, address: string, body?: unknown): string {
  const parts = ["curl", "-X", method, quoted(address), "-H", '"Authorization: Bearer $CARILLON_TOKEN"'];
  if (body !== undefined) parts.push("-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(body)));
  return parts.join(" ");
}
