/** The frame of all pages: navigation, search, preferences, and banners about the server. */

import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { LogOut, Search } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useTranslations } from "use-intl";
import { fleet, session as sessions } from "../api/client";
import { ApiError } from "../api/http";
import { LOCALES, OWN_ZONE, THEMES, usePreferences, ZONES, type Locale, type Theme, type ZoneChoice } from "../preferences";
import { useLive } from "../live/useLive";
import { useSession } from "../sessionContext";
import { useNewerBuild } from "../ui/controls";
import { useShortcuts } from "./shortcuts";
import { Help } from "./Help";
import { PAGES } from "./pages";
import { Palette } from "./Palette";

export function Shell() {
  const t = useTranslations();
  const [overlay, setOverlay] = useState<"palette" | "help" | null>(null);
  useShortcuts({ onPalette: () => setOverlay("palette"), onHelp: () => setOverlay("help") });
  return (
    <div className="shell">
      <a className="skip-link" href="#content">
        {t("app.skip")}
      </a>
      <Navigation />
      <Bar onSearch={() => setOverlay("palette")} />
      <Content />
      {overlay === "palette" ? <Palette onClose={() => setOverlay(null)} /> : null}
      {overlay === "help" ? <Help onClose={() => setOverlay(null)} /> : null}
    </div>
  );
}

function Navigation() {
  const t = useTranslations("nav");
  const path = useRouterState({ select: (state) => state.resolvedLocation?.pathname });
  const element = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the links are one line, wider than the screen.
    element.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [path]);
  return (
    <nav className="nav" aria-label={t("label")} ref={element}>
      <Link to="/overview" className="brand" aria-label="Carillon">
        <img src="/console/icon.svg" alt="" />
        Carillon
      </Link>
      <ul>
        {PAGES.map(([path, name, Icon]) => (
          <li key={path}>
            <Link to={path} activeProps={{ "aria-current": "page" }} activeOptions={{ includeSearch: false }}>
              <Icon size={17} aria-hidden="true" />
              {t(name)}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Bar({ onSearch }: { onSearch: () => void }) {
  const t = useTranslations();
  const { user } = useSession();
  return (
    <header className="bar">
      <button type="button" onClick={onSearch}>
        <Search size={15} aria-hidden="true" />
        {t("app.search")}
        <kbd className="soft small wide">Ctrl K</kbd>
      </button>
      <span className="grow" />
      <LiveMark />
      <Choosers />
      <Link to="/sessions" className="small">
        <bdi>{user.username}</bdi>
      </Link>
      <button
        type="button"
        className="plain"
        aria-label={t("login.logout")}
        title={t("login.logout")}
        onClick={() => void logOut()}
      >
        <LogOut size={16} aria-hidden="true" />
      </button>
    </header>
  );
}

/** Whether this page learns of changes each second, or asks for them. */
function LiveMark() {
  const t = useTranslations("live");
  const { pulse, isLive } = useLive();
  const [tone, text] = !isLive
    ? (["wait", t("polling", { seconds: OVERVIEW_MS / 1000 })] as const)
    : pulse?.mode === "sweep"
      ? (["warn", t("sweep")] as const)
      : (["good", t("live")] as const);
  return (
    <span className={`small live tone-${tone}`} role="status">
      <span aria-hidden="true">{isLive ? "●" : "◌"}</span> <span>{text}</span>
    </span>
  );
}

async function logOut() {
  const current = await sessions.current().catch(() => null);
  await sessions.logout().catch(() => undefined);
  location.assign(current?.logout_url ?? "/console/");
}

export function Choosers() {
  const t = useTranslations("prefs");
  const { theme, locale, zone, change } = usePreferences();
  const zoneNames = { utc: t("utc"), schedule: t("schedule"), mine: t("mine", { zone: OWN_ZONE }) };
  return (
    <div className="row wide">
      <select aria-label={t("zone")} value={zone} onChange={(event) => change({ zone: event.target.value as ZoneChoice })}>
        {ZONES.map((one) => (
          <option key={one} value={one}>
            {zoneNames[one]}
          </option>
        ))}
      </select>
      <select aria-label={t("theme")} value={theme} onChange={(event) => change({ theme: event.target.value as Theme })}>
        {THEMES.map((one) => (
          <option key={one} value={one}>
            {t(one)}
          </option>
        ))}
      </select>
      <select
        aria-label={t("language")}
        value={locale}
        onChange={(event) => change({ locale: event.target.value as Locale })}
      >
        {LOCALES.map((one) => (
          <option key={one} value={one} lang={one}>
            {one === "de" ? "Deutsch" : "English"}
          </option>
        ))}
      </select>
    </div>
  );
}

function Content() {
  const main = useRef<HTMLElement>(null);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const shown = useRouterState({ select: (state) => state.resolvedLocation?.href });
  const first = useRef(true);
  usePageTitle(path);
  useEffect(() => {
    // A new page begins at its top, for screen readers too; the first one is left to the browser.
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
    main.current?.scrollTo(0, 0);
  }, [path]);
  return (
    <main className="main" id="content" ref={main} tabIndex={-1} data-shown={shown}>
      <Banners />
      <Outlet />
    </main>
  );
}

/** Names the browser's tab after the page. */
function usePageTitle(path: string) {
  const t = useTranslations("nav");
  const name = PAGES.find(([place]) => path.includes(place))?.[1];
  const title = name ? `${t(name)} · Carillon` : "Carillon";
  useEffect(() => {
    document.title = title;
  }, [title]);
}

const OVERVIEW_MS = 10_000;

/** The overview, shared by the banners and the overview page. */
export function useOverview() {
  return useQuery({
    queryKey: ["overview"],
    queryFn: fleet.overview,
    refetchInterval: (query) => (query.state.error instanceof ApiError && query.state.error.status === 404 ? false : OVERVIEW_MS),
    retry: false,
  });
}

function Banners() {
  const t = useTranslations("app");
  const newer = useNewerBuild();
  const overview = useOverview();
  const { pulse, isLive } = useLive();
  const { refetch } = overview;
  useEffect(() => {
    // A stream that ends is the first sign that the server is away.
    if (!isLive) void refetch();
  }, [isLive, refetch]);
  const enabled = isLive && pulse ? pulse.schedules_enabled : overview.data?.schedules_enabled;
  const away = overview.error instanceof ApiError && [0, 503].includes(overview.error.status);
  return (
    <>
      {newer ? (
        <div className="banner" role="status">
          {t("newer")}
          <button type="button" onClick={() => location.reload()}>
            {t("reload")}
          </button>
        </div>
      ) : null}
      {enabled === false ? (
        <div className="banner" role="status">
          {t("disabled")}
        </div>
      ) : null}
      {away ? (
        <div className="banner" role="status">
          {t("unavailable")}
        </div>
      ) : null}
    </>
  );
}

/** Instead of a page that could not be drawn; the navigation stays. */
export function Broken({ error }: { error: unknown }) {
  const t = useTranslations("app");
  return (
    <div className="page">
      <div className="empty" role="alert">
        <h1>{t("broken")}</h1>
        <p>
          <code>{String(error)}</code>
        </p>
        <button type="button" onClick={() => location.reload()}>
          {t("reload")}
        </button>
      </div>
    </div>
  );
}

export function Missing() {
  const t = useTranslations("app");
  return (
    <div className="page">
      <div className="empty">
        <h1>{t("missing")}</h1>
        <p>{t("missingText")}</p>
      </div>
    </div>
  );
}
