/** Keys that work on every page. They are not taken from somebody who types. */

import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import type { PAGES } from "./pages";
import { nextOf, THEMES, usePreferences, ZONES } from "../preferences";

export function isTyping(target: EventTarget | null): boolean {
  const element = target instanceof HTMLElement ? target : null;
  return element?.closest("input, textarea, select, [contenteditable], dialog") !== null && element !== null;
}

const PLACES: Record<string, (typeof PAGES)[number][0]> = {
  o: "/overview",
  s: "/schedules",
  u: "/upcoming",
  l: "/load",
  w: "/workflows",
  r: "/runs",
  b: "/breakers",
  m: "/limits",
  c: "/calendars",
  a: "/agents",
};
const SEQUENCE_MS = 1200;

export function useShortcuts({ onPalette, onHelp }: { onPalette: () => void; onHelp: () => void }) {
  const navigate = useNavigate();
  const preferences = usePreferences();
  const pressedG = useRef(0);
  useEffect(() => {
    function onKey(event: KeyboardEvent) {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        onPalette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const place = event.timeStamp - pressedG.current < SEQUENCE_MS ? PLACES[event.key] : undefined;
      pressedG.current = event.key === "g" ? event.timeStamp : 0;
      if (place) {
        event.stopImmediatePropagation();
        void navigate({ to: place });
      } else if (event.key === "?") onHelp();
      else if (event.key === "t") preferences.change({ theme: nextOf(THEMES, preferences.theme) });
      else if (event.key === "z") preferences.change({ zone: nextOf(ZONES, preferences.zone) });
      else if (event.key === "/") {
        event.preventDefault();
        const search = document.querySelector<HTMLInputElement>("main input[type=search]");
        if (search) search.focus();
        else onPalette();
      }
    }
    document.addEventListener("keydown", onKey, { capture: true });
    return () => document.removeEventListener("keydown", onKey, { capture: true });
  }, [navigate, preferences, onPalette, onHelp]);
}

/** Keys of one page, by their name. */
export function usePageKeys(keys: Record<string, () => void>) {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    function onKey(event: KeyboardEvent) {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const action = current.current[event.key];
      if (action) {
        event.preventDefault();
        action();
      }
    }
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}
