/** Ctrl-K: pages by their names, and schedules, workflows and runs by name or id. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useDeferredValue, useState, type KeyboardEvent } from "react";
import { useTranslations } from "use-intl";
import { fleet, schedules } from "../api/client";
import { NotSupportedError } from "../api/http";
import { Dialog } from "../ui/controls";
import { PAGES } from "./pages";

interface Choice {
  key: string;
  label: string;
  kind: string;
  to: string;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-/i;
const PLACES: Record<string, string> = { schedule: "/schedules", workflow: "/workflows", execution: "/runs" };

export function Palette({ onClose }: { onClose: () => void }) {
  const t = useTranslations();
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const wanted = useDeferredValue(text.trim());
  const found = useQuery({
    queryKey: ["palette", wanted],
    queryFn: () => search(wanted),
    enabled: wanted.length > 1,
    retry: false,
  });
  const pages: Choice[] = PAGES.map(([path, name]) => ({
    key: path,
    label: t(`nav.${name}`),
    kind: t("palette.pages"),
    to: path,
  })).filter((page) => page.label.toLowerCase().includes(wanted.toLowerCase()));
  const choices = [...(wanted.length > 1 ? (found.data ?? []) : []), ...pages];
  const current = Math.min(at, choices.length - 1);

  function open(choice: Choice | undefined) {
    if (!choice) return;
    onClose();
    void navigate({ to: choice.to });
  }
  function onKey(event: KeyboardEvent) {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setAt((current + step + choices.length) % Math.max(1, choices.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(choices[current]);
    }
  }
  return (
    <Dialog title={t("palette.title")} onClose={onClose}>
      <input
        type="text"
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-choices"
        aria-activedescendant={choices[current] ? `palette-${current}` : undefined}
        aria-label={t("palette.input")}
        placeholder={t("palette.input")}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKey}
      />
      <ul role="listbox" id="palette-choices" className="palette" aria-label={t("palette.found")}>
        {choices.map((choice, index) => (
          <li
            key={choice.key}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === current}
            onClick={() => open(choice)}
          >
            <bdi>{choice.label}</bdi>
            <span className="soft small">{choice.kind}</span>
          </li>
        ))}
      </ul>
      {choices.length === 0 ? <p className="soft">{t("palette.none")}</p> : null}
    </Dialog>
  );
}

/** Asks the server's search; an older server is asked for a schedule by its id alone. */
async function search(text: string): Promise<Choice[]> {
  try {
    const { items } = await fleet.search(text);
    return items.map((item) => ({
      key: `${item.type}${item.id}`,
      label: item.name || String(item.id),
      kind: item.type,
      to: `${PLACES[item.type] ?? "/schedules"}/${item.id}`,
    }));
  } catch (error) {
    if (!(error instanceof NotSupportedError) || !UUID.test(text)) return [];
    const { value } = await schedules.read(text);
    return [{ key: value.id, label: value.name, kind: "schedule", to: `/schedules/${value.id}` }];
  }
}
