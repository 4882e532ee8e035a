/** The search field of the list: words, and filters such as `status:paused label:team=core "nightly report"`. */

import type { Query } from "../api/http";

/** The filters that people write, and the parameters of the list that they stand for. */
export const FILTERS: Record<string, string> = {
  status: "status",
  reason: "status_reason",
  health: "health",
  owner: "owner_id",
  kind: "kind",
  workflow: "workflow_id",
  namespace: "namespace",
  team: "team_id",
  label: "label",
  host: "target_host",
};

export interface Chip {
  filter: string;
  value: string;
}

export interface Parsed {
  chips: Chip[];
  text: string;
}

const TOKEN = /([a-z]+):("[^"]*"|\S+)|"([^"]*)"|(\S+)/g;
const unquoted = (text: string) => text.replace(/^"|"$/g, "");

/** Splits what was typed into filters and free text. An unknown word before a colon is part of the text. */
export function parseSearch(typed: string): Parsed {
  const chips: Chip[] = [];
  const words: string[] = [];
  for (const [whole, filter, value, quoted, word] of typed.matchAll(TOKEN)) {
    if (filter && value && FILTERS[filter]) chips.push({ filter, value: unquoted(value) });
    else words.push(quoted ?? word ?? whole);
  }
  return { chips, text: words.join(" ") };
}

/** Returns the text that stands for these filters and words; the inverse of `parseSearch`. */
export function searchText({ chips, text }: Parsed): string {
  const filters = chips.map(({ filter, value }) => `${filter}:${/\s/.test(value) ? `"${value}"` : value}`);
  return [...filters, text].filter(Boolean).join(" ");
}

/** Returns the parameters of the list; a label may be given several times. */
export function queryOf({ chips, text }: Parsed): Query {
  const query: Query = { q: text || undefined };
  for (const { filter, value } of chips) {
    const name = FILTERS[filter];
    if (!name) continue;
    query[name] = name === "label" ? [...((query.label as string[] | undefined) ?? []), value] : value;
  }
  return query;
}

/** Sets or removes one filter, as a facet does when it is clicked. */
export function toggled(parsed: Parsed, filter: string, value: string): Parsed {
  const others = parsed.chips.filter((chip) => chip.filter !== filter);
  const isSet = parsed.chips.some((chip) => chip.filter === filter && chip.value === value);
  return { ...parsed, chips: isSet ? others : [...others, { filter, value }] };
}

/** Takes one filter away. */
export function without(parsed: Parsed, gone: Chip): Parsed {
  return { ...parsed, chips: parsed.chips.filter((chip) => chip.filter !== gone.filter || chip.value !== gone.value) };
}

const NUMBERS = new Set(["workflow_id", "team_id"]);

/** Returns the filter of an operation on all schedules that match: ids of workflows and teams are numbers in a body. */
export function bodyFilterOf(query: Query): Record<string, unknown> {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given.map(([name, value]) => [name, NUMBERS.has(name) ? Number(value) : value]));
}
