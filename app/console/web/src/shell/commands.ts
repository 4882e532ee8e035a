/** What is typed into the palette: something to find, `>pause nightly`, or `?why nightly 02:30`. */

import { clockText } from "../ui/time";

export const VERBS = ["pause", "resume", "run"] as const;
export type Verb = (typeof VERBS)[number];

export type Typed =
  | { kind: "find"; text: string }
  | { kind: "do"; verbs: Verb[]; text: string }
  | { kind: "why"; text: string; at?: string };

const CLOCK = /^([01]\d|2[0-3]):[0-5]\d$/;
const MOMENT = /^\d{4}-\d\d-\d\dT\S+$/;

/** Reads what was typed; `words` are the names of the verbs in the language of the page. */
export function parsePalette(typed: string, words: Record<Verb, string>): Typed {
  const text = typed.trim();
  if (text.startsWith(">")) return commandOf(text.slice(1).trim(), words);
  if (text.startsWith("?")) return questionOf(text.slice(1).replace(/^\s*(why|warum)(\s+|$)/i, "").trim());
  return { kind: "find", text };
}

function commandOf(text: string, words: Record<Verb, string>): Typed {
  const [first = "", ...rest] = text.split(/\s+/);
  const begins = (word: string) => word.toLowerCase().startsWith(first.toLowerCase());
  return { kind: "do", verbs: VERBS.filter((verb) => begins(verb) || begins(words[verb])), text: rest.join(" ") };
}

/** The last word is a time if it looks like one: a clock's, or a moment with a date. */
function questionOf(text: string): Typed {
  const words = text.split(/\s+/);
  const last = words.at(-1) ?? "";
  if (words.length < 2 || !(CLOCK.test(last) || MOMENT.test(last))) return { kind: "why", text };
  return { kind: "why", text: words.slice(0, -1).join(" "), at: last };
}

const MINUTE_MS = 60_000;
/** A clock that is put forward does not show every time each day, but it shows each within two days. */
const LOOKED_BACK = 2 * 24 * 60;

/** Returns the last moment at which a clock in a zone showed a time; a moment with a date stays as it is. */
export function lastMoment(at: string, zone: string, now: number): string {
  if (!CLOCK.test(at)) return at;
  const minute = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  for (let back = 0; back <= LOOKED_BACK; back += 1) {
    const moment = minute - back * MINUTE_MS;
    if (clockText(moment, zone) === at) return new Date(moment).toISOString();
  }
  return new Date(minute).toISOString();
}
