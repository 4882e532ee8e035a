/** Scopes are cumulative: each includes those before it. */
export const SCOPES = ["read", "operate", "write", "admin"] as const;
export type Scope = (typeof SCOPES)[number];

/** Returns whether one of these scopes includes the one that a call needs. Unknown scopes include nothing. */
export function allows(granted: readonly string[], needed: Scope): boolean {
  return granted.some((scope) => SCOPES.indexOf(scope as Scope) >= SCOPES.indexOf(needed));
}
