/** The one-time code in the fragment of the address. A fragment is never sent to a server. */

export function codeIn(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code");
}

/** Returns the code and removes it from the address, so that it is not kept in the browser's history. */
export function takeCode(): string | null {
  const code = codeIn(location.hash);
  if (code) history.replaceState(history.state, "", location.pathname + location.search);
  return code;
}
