/** What a person has chosen: theme, language, and the zone in which times are shown. Kept in this browser. */

import { createContext, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { IntlProvider } from "use-intl";
import en, { type Messages } from "./i18n/en";

export const THEMES = ["auto", "light", "dark", "contrast"] as const;
export const LOCALES = ["en", "de"] as const;
export const ZONES = ["utc", "schedule", "mine"] as const;
export type Theme = (typeof THEMES)[number];
export type Locale = (typeof LOCALES)[number];
export type ZoneChoice = (typeof ZONES)[number];

interface Choices {
  theme: Theme;
  locale: Locale;
  zone: ZoneChoice;
}

interface Preferences extends Choices {
  change: (choice: Partial<Choices>) => void;
}

const STORED_AS = "carillon-preferences";
export const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

function stored(): Choices {
  const locale = navigator.language.startsWith("de") ? "de" : "en";
  const defaults: Choices = { theme: "auto", locale, zone: "utc" };
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem(STORED_AS) ?? "{}") as Partial<Choices>) };
  } catch {
    return defaults;
  }
}

const Context = createContext<Preferences | null>(null);

export function usePreferences(): Preferences {
  const value = useContext(Context);
  if (!value) throw new Error("PreferencesProvider is missing");
  return value;
}

export function nextOf<T>(values: readonly T[], current: T): T {
  return values[(values.indexOf(current) + 1) % values.length] as T;
}

export function PreferencesProvider({ children }: { children: ReactNode }) {
  const [choices, setChoices] = useState(stored);
  const messages = useMessages(choices.locale);
  const value = useMemo(
    () => ({
      ...choices,
      change: (choice: Partial<Choices>) =>
        setChoices((before) => {
          const after = { ...before, ...choice };
          localStorage.setItem(STORED_AS, JSON.stringify(after));
          return after;
        }),
    }),
    [choices],
  );
  useEffect(() => {
    document.documentElement.dataset.theme = choices.theme;
    document.documentElement.lang = choices.locale;
  }, [choices]);
  if (!messages) return null;
  return (
    <Context.Provider value={value}>
      <IntlProvider locale={choices.locale} messages={messages} timeZone="UTC">
        {children}
      </IntlProvider>
    </Context.Provider>
  );
}

/** English is part of the first load; other languages are fetched when they are chosen. */
function useMessages(locale: Locale): Messages | null {
  const [german, setGerman] = useState<Messages | null>(null);
  useEffect(() => {
    if (locale === "de") void import("./i18n/de").then((module) => setGerman(module.default));
  }, [locale]);
  return locale === "de" ? german : en;
}
