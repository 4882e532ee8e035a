/** The pages of the navigation, in its order. */

import {
  Activity,
  Bot,
  CalendarDays,
  CalendarOff,
  ChartColumn,
  Clock,
  Gauge,
  ListChecks,
  Settings2,
  ShieldAlert,
  TrafficCone,
  Workflow,
} from "lucide-react";

export const PAGES = [
  ["/overview", "overview", Gauge],
  ["/schedules", "schedules", Clock],
  ["/upcoming", "upcoming", CalendarDays],
  ["/load", "load", ChartColumn],
  ["/workflows", "workflows", Workflow],
  ["/runs", "runs", Activity],
  ["/breakers", "breakers", ShieldAlert],
  ["/limits", "limits", TrafficCone],
  ["/calendars", "calendars", CalendarOff],
  ["/audit", "audit", ListChecks],
  ["/agents", "agents", Bot],
  ["/settings", "settings", Settings2],
] as const;
