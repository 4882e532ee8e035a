/** Ctrl-K: pages by their names, schedules, workflows and runs by name or id, commands and questions about schedules. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useDeferredValue, useState, type KeyboardEvent } from "react";
import { useTranslations } from "use-intl";
import { fleet, schedules } from "../api/client";
import { NotSupportedError } from "../api/http";
import { useSession } from "../sessionContext";
import { allows } from "../ui/scopes";
import { Dialog, useAct, useToast } from "../ui/controls";
import { lastMoment, parsePalette, type Verb } from "./commands";
import { PAGES } from "./pages";

interface Choice {
  key: string;
  label: string;
  kind: string;
  /** Leaves the palette open and writes this into it. */
  fill?: string;
  open?: () => void;
}

interface Found {
  type: string;
  id: string;
  name: string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-/i;
const PLACES: Record<string, string> = { schedule: "/schedules", workflow: "/workflows", execution: "/runs" };

export function Palette({ onClose }: { onClose: () => void }) {
  const t = useTranslations("palette");
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const choices = useChoices(text);
  const current = Math.min(at, choices.length - 1);

  function type(typed: string) {
    setText(typed);
    setAt(0);
  }
  function choose(choice: Choice | undefined) {
    if (!choice) return;
    if (choice.fill !== undefined) {
      type(choice.fill);
      return;
    }
    onClose();
    choice.open?.();
  }
  function onKey(event: KeyboardEvent) {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setAt((current + step + choices.length) % Math.max(1, choices.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(choices[current]);
    }
  }
  return (
    <Dialog title={t("title")} onClose={onClose}>
      <input
        type="text"
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-choices"
        aria-activedescendant={choices[current] ? `palette-${current}` : undefined}
        aria-label={t("input")}
        placeholder={t("input")}
        value={text}
        onChange={(event) => type(event.target.value)}
        onKeyDown={onKey}
      />
      <ul role="listbox" id="palette-choices" className="palette" aria-label={t("found")}>
        {choices.map((choice, index) => (
          <li
            key={choice.key}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === current}
            onClick={() => choose(choice)}
          >
            <bdi>{choice.label}</bdi>
            <span className="soft small">{choice.kind}</span>
          </li>
        ))}
      </ul>
      {choices.length === 0 ? <p className="soft">{t("none")}</p> : null}
      <p className="soft small">{t("hint")}</p>
    </Dialog>
  );
}

/** What can be chosen for what is typed. */
function useChoices(typed: string): Choice[] {
  const t = useTranslations();
  const navigate = useNavigate();
  const act = useSchedule();
  const words = { pause: t("schedule.pause"), resume: t("schedule.resume"), run: t("schedule.run") };
  const wanted = parsePalette(typed, words);
  const found = useFound(wanted.text);
  const kinds: Record<string, string> = {
    schedule: t("runs.schedule"),
    workflow: t("schedule.workflow"),
    execution: t("palette.run"),
  };
  if (wanted.kind === "find") {
    const pages = PAGES.filter(([, name]) => t(`nav.${name}`).toLowerCase().includes(wanted.text.toLowerCase()));
    return [
      ...found.map((one) => ({
        key: `${one.type}${one.id}`,
        label: one.name,
        kind: kinds[one.type] ?? one.type,
        open: () => void navigate({ to: `${PLACES[one.type] ?? "/schedules"}/${one.id}` }),
      })),
      ...pages.map(([path, name]) => ({
        key: path,
        label: t(`nav.${name}`),
        kind: t("palette.pages"),
        open: () => void navigate({ to: path }),
      })),
    ];
  }
  const named = found.filter((one) => one.type === "schedule");
  if (wanted.kind === "why")
    return named.map((one) => ({
      key: one.id,
      label: one.name,
      kind: [t("palette.why"), wanted.at].filter(Boolean).join(" "),
      open: () => void act.explain(one.id, wanted.at),
    }));
  if (wanted.text === "")
    return wanted.verbs.map((verb) => ({ key: verb, label: `>${verb} …`, kind: words[verb], fill: `>${verb} ` }));
  return wanted.verbs.flatMap((verb) =>
    named.map((one) => ({ key: verb + one.id, label: one.name, kind: words[verb], open: () => void act.run(verb, one) })),
  );
}

/** Carries out a command on a schedule, or goes to the explanation of a time. */
function useSchedule() {
  const t = useTranslations();
  const act = useAct();
  const toast = useToast();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { scopes } = useSession();
  const changes: Record<Verb, (id: string) => Promise<unknown>> = {
    pause: (id) => schedules.pause(id, {}),
    resume: (id) => schedules.resume(id),
    run: (id) => schedules.run(id),
  };
  const done: Record<Verb, string> = {
    pause: t("schedule.paused"),
    resume: t("schedule.resumed"),
    run: t("schedule.started"),
  };
  async function run(verb: Verb, { id, name }: Found): Promise<void> {
    if (!allows(scopes, "operate")) {
      toast(t("app.needsScope", { scope: "operate" }));
      return;
    }
    const result = await act(() => changes[verb](id));
    if (result === undefined) return;
    const back = verb === "pause" ? "resume" : verb === "resume" ? "pause" : null;
    const undo = back && { label: t("bulk.undo"), run: () => void run(back, { id, name, type: "schedule" }) };
    toast(`${name}: ${done[verb]}`, undo ?? undefined);
    await client.invalidateQueries();
  }
  async function explain(id: string, at: string | undefined) {
    const schedule = at === undefined ? null : await act(() => schedules.read(id));
    const moment = at === undefined || !schedule ? undefined : lastMoment(at, schedule.value.timezone, Date.now());
    await navigate({ to: "/schedules/$id", params: { id }, search: { tab: "explain", at: moment } });
  }
  return { run, explain };
}

/** What the server finds for a text of two characters and more. */
function useFound(text: string): Found[] {
  const wanted = useDeferredValue(text);
  const query = useQuery({
    queryKey: ["palette", wanted],
    queryFn: () => search(wanted),
    enabled: wanted.length > 1,
    retry: false,
  });
  return wanted.length > 1 ? (query.data ?? []) : [];
}

/** Asks the server's search; an older server is asked for a schedule by its id alone. */
async function search(text: string): Promise<Found[]> {
  try {
    const { items } = await fleet.search(text);
    return items.map((item) => ({ type: item.type, id: String(item.id), name: item.name || String(item.id) }));
  } catch (error) {
    if (!(error instanceof NotSupportedError) || !UUID.test(text)) return [];
    const { value } = await schedules.read(text);
    return [{ type: "schedule", id: value.id, name: value.name }];
  }
}
