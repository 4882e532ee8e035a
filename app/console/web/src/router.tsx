/** The addresses of the console. Every filter is part of the address, so that any view can be shared. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { Broken, Missing, Shell } from "./shell/Shell";

export type Search = Record<string, string | undefined>;

/** Keeps the named parameters that are texts or numbers, and drops everything else. */
function searchOf<K extends string>(...names: K[]) {
  return (raw: Record<string, unknown>): { [name in K]?: string } =>
    Object.fromEntries(
      names.flatMap((name) => {
        const value = raw[name];
        return typeof value === "string" || typeof value === "number" ? [[name, String(value)]] : [];
      }),
    ) as { [name in K]?: string };
}

const root = createRootRoute({ component: Shell, notFoundComponent: Missing });
const at = <P extends string>(path: P) => ({ getParentRoute: () => root, path }) as const;

const index = createRoute({
  ...at("/"),
  beforeLoad: () => {
    throw redirect({ to: "/overview" });
  },
});
const overview = createRoute({
  ...at("/overview"),
  component: lazyRouteComponent(() => import("./overview/Overview")),
});
const schedules = createRoute({
  ...at("/schedules"),
  validateSearch: searchOf("q", "sort"),
  component: lazyRouteComponent(() => import("./schedules/List")),
});
const newSchedule = createRoute({
  ...at("/schedules/new"),
  validateSearch: searchOf("workflow"),
  component: lazyRouteComponent(() => import("./schedules/Editor"), "NewSchedule"),
});
const schedule = createRoute({
  ...at("/schedules/$id"),
  validateSearch: searchOf("tab", "at"),
  component: lazyRouteComponent(() => import("./schedules/SchedulePage")),
});
const upcoming = createRoute({
  ...at("/upcoming"),
  validateSearch: searchOf("hours", "view", "at", "to"),
  component: lazyRouteComponent(() => import("./upcoming/Upcoming")),
});
const load = createRoute({
  ...at("/load"),
  validateSearch: searchOf("by"),
  component: lazyRouteComponent(() => import("./load/Load")),
});
const workflows = createRoute({
  ...at("/workflows"),
  component: lazyRouteComponent(() => import("./workflows/List")),
});
const workflow = createRoute({
  ...at("/workflows/$id"),
  validateSearch: searchOf("tab", "run"),
  component: lazyRouteComponent(() => import("./workflows/Editor")),
});
const runs = createRoute({
  ...at("/runs"),
  validateSearch: searchOf("status", "schedule", "workflow"),
  component: lazyRouteComponent(() => import("./runs/Runs")),
});
const run = createRoute({
  ...at("/runs/$id"),
  component: lazyRouteComponent(() => import("./runs/Run")),
});
const breakers = createRoute({
  ...at("/breakers"),
  component: lazyRouteComponent(() => import("./runs/Breakers")),
});
const limits = createRoute({
  ...at("/limits"),
  component: lazyRouteComponent(() => import("./runs/Limits")),
});
const calendars = createRoute({
  ...at("/calendars"),
  component: lazyRouteComponent(() => import("./upcoming/Calendars")),
});
const audit = createRoute({
  ...at("/audit"),
  validateSearch: searchOf("actor", "via", "object_type", "action", "object_id", "days"),
  component: lazyRouteComponent(() => import("./audit/Audit")),
});
const agents = createRoute({
  ...at("/agents"),
  component: lazyRouteComponent(() => import("./audit/Agents")),
});
const settings = createRoute({
  ...at("/settings"),
  component: lazyRouteComponent(() => import("./accounts/Settings")),
});
const sessions = createRoute({
  ...at("/sessions"),
  component: lazyRouteComponent(() => import("./accounts/Sessions")),
});

export const router = createRouter({
  basepath: "/console",
  routeTree: root.addChildren([
    index,
    overview,
    schedules,
    newSchedule,
    schedule,
    upcoming,
    load,
    workflows,
    workflow,
    runs,
    run,
    breakers,
    limits,
    calendars,
    audit,
    agents,
    settings,
    sessions,
  ]),
  defaultPreload: "intent",
  defaultErrorComponent: Broken,
  // Addresses stay readable: `?q=status:paused`, not JSON.
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== "");
    const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return text ? `?${text}` : "";
  },
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
