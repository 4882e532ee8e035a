/** What an edit changed, as lines of text. */

export interface ChangeLine {
  field: string;
  /** Missing where the value before is not known. */
  before?: string;
  after: string;
}

const LONGEST = 200;

function text(value: unknown): string {
  const written = typeof value === "string" && value !== "" ? value : JSON.stringify(value ?? null);
  return written.length > LONGEST ? `${written.slice(0, LONGEST)} …` : written;
}

/** Returns a line for each field; a value that is no pair of `from` and `to` is shown as it came. */
export function changeLines(changes: Record<string, unknown> | null): ChangeLine[] {
  return Object.entries(changes ?? {}).map(([field, value]) => {
    const isPair = value !== null && typeof value === "object" && "to" in value;
    if (!isPair) return { field, after: text(value) };
    const { from, to } = value as { from?: unknown; to: unknown };
    return { field, before: text(from), after: text(to) };
  });
}
