/** One function for each call of the API that the console makes. */

import { get, getNew, post, postNew, send, type Answer, type Query } from "./http";
import type * as t from "./types";

export const session = {
  current: () => get<t.CurrentSession>("/session/"),
  login: (secret: { token: string } | { code: string }) => post<void>("/session/", secret),
  logout: () => send<void>("DELETE", "/session/"),
  list: () => get<t.Page<t.Session>>("/sessions/"),
  end: (id: number) => send<void>("DELETE", `/sessions/${id}/`),
};

export const schedules = {
  list: (query: Query) => get<t.Page<t.Schedule>>("/schedules/", query),
  read: (id: string) => send<t.Schedule>("GET", `/schedules/${id}/`),
  create: (body: object) => post<t.Schedule>("/schedules/", body),
  change: (id: string, body: object, etag?: string | null) =>
    send<t.Schedule>("PATCH", `/schedules/${id}/`, { body, etag: etag ?? undefined }),
  remove: (id: string) => send<void>("DELETE", `/schedules/${id}/`),
  pause: (id: string, body: { note?: string; until?: string }) => post<t.Schedule>(`/schedules/${id}/pause/`, body),
  resume: (id: string, body: { note?: string } = {}) => post<t.Schedule>(`/schedules/${id}/resume/`, body),
  revive: (id: string) => post<t.Schedule>(`/schedules/${id}/revive/`),
  run: (id: string) => post<t.Execution>(`/schedules/${id}/run/`),
  preview: (body: object) => post<t.Preview>("/schedules/preview/", body),
  plan: (id: string, body: object) => postNew<t.Plan>(`/schedules/${id}/plan/`, body),
  skip: (id: string, body: object) => postNew<{ skipped: string[] }>(`/schedules/${id}/skip/`, body),
  /** Lets a slot fire after all, or all that were to be left out. */
  unskip: (id: string, slot?: string) =>
    send<void>("DELETE", `/schedules/${id}/skip/`, { query: { from: slot, to: slot }, mayBeMissing: true }),
  backfillPlan: (id: string, body: object) =>
    postNew<t.BackfillPlan>(`/schedules/${id}/backfill/`, { ...body, dry_run: true }),
  backfill: (id: string, body: object) => postNew<t.Operation>(`/schedules/${id}/backfill/`, body),
  runs: (id: string, limit = 20) => get<t.Page<t.Execution>>(`/schedules/${id}/runs/`, { limit }),
  explain: (id: string, at?: string) => get<t.Explanation>(`/schedules/${id}/explain/`, { at }),
  ledger: (id: string, limit: number) => get<t.Page<t.Slot>>(`/schedules/${id}/ledger/`, { limit }),
  slots: (id: string, query: Query) => getNew<t.Slots>(`/schedules/${id}/slots/`, query),
  slotsOfMany: (ids: string[], last: number) =>
    getNew<{ schedules: Record<string, t.Slots> }>("/slots/", { schedule_ids: ids.join(","), last }),
};

export const bulk = {
  plan: (request: t.BulkRequest) => postNew<t.BulkPlan>("/schedules/bulk/", { ...request, dry_run: true }),
  start: (request: t.BulkRequest) => postNew<t.Operation>("/schedules/bulk/", request),
  list: () => getNew<t.Page<t.Operation>>("/operations/", { limit: 20 }),
  read: (id: string) => getNew<t.Operation>(`/operations/${id}/`),
  cancel: (id: string) => postNew<t.Operation>(`/operations/${id}/cancel/`),
  undo: (id: string) => postNew<t.Operation>(`/operations/${id}/undo/`),
};

export const workflows = {
  list: (query: Query = {}) => get<t.Page<t.Workflow>>("/workflows/", query),
  read: (id: number) => send<t.Workflow>("GET", `/workflows/${id}/`),
  create: (body: object) => post<t.Workflow>("/workflows/", body),
  change: (id: number, body: object, etag?: string | null): Promise<Answer<t.Workflow>> =>
    send<t.Workflow>("PATCH", `/workflows/${id}/`, { body, etag: etag ?? undefined }),
  validate: (body: object) =>
    postNew<{ valid: boolean; errors: { node: string | null; field: string | null; message: string }[] }>(
      "/workflows/validate/",
      body,
    ),
  actions: () => get<{ items: t.Action[] }>("/actions/"),
};

export const executions = {
  list: (query: Query) => get<t.Page<t.Execution>>("/executions/", query),
  read: (id: string) => get<t.ExecutionDetail>(`/executions/${id}/`),
  cancel: (id: string) => post<t.Execution>(`/executions/${id}/cancel/`),
  again: (id: string) => postNew<t.Execution>(`/executions/${id}/again/`),
};

export const breakers = {
  list: () => get<t.Page<t.Breaker>>("/breakers/"),
  read: (id: number) => get<t.BreakerDetail>(`/breakers/${id}/`),
  reset: (id: number) => post<t.Breaker>(`/breakers/${id}/reset/`),
};

export const fleet = {
  overview: () => getNew<t.Overview>("/overview/"),
  workers: () => getNew<t.Page<t.Worker>>("/workers/"),
  search: (q: string) => getNew<{ items: t.Found[] }>("/search/", { q }),
  forecast: (body: object) => postNew<t.Forecast>("/forecast/", body),
  spread: (body: object) => postNew<t.Spread>("/forecast/spread/", body),
  upcoming: (query: Query) => getNew<t.UpcomingList>("/upcoming/", query),
  audit: (query: Query) => getNew<t.Page<t.AuditEvent>>("/audit/", query),
  timezones: () => getNew<{ items: (string | { name: string })[] }>("/timezones/"),
};

export const leases = {
  list: (query: Query) => getNew<t.Page<t.Lease>>("/leases/", query),
  read: (id: number) => get<t.LeaseDetail>(`/leases/${id}/`),
  grant: (body: object) => post<t.LeaseDetail & { token: string }>("/leases/", body),
  change: (id: number, body: object) => send<t.LeaseDetail>("PATCH", `/leases/${id}/`, { body }),
  /** Takes schedules out of a lease; without ids all of them. */
  adopt: (id: number, schedule_ids: string[] | undefined, note: string) =>
    post<t.LeaseDetail>(`/leases/${id}/adopt/`, { schedule_ids, note }),
  approve: (id: number, schedule_ids: string[]) => post<t.LeaseDetail>(`/leases/${id}/approve/`, { schedule_ids }),
  revoke: (id: number, note: string) => post<t.LeaseDetail>(`/leases/${id}/revoke/`, { note }),
};

export const limits = {
  list: (query: Query) => getNew<t.Page<t.Limit>>("/limits/", query),
  create: (body: object) => post<t.Limit>("/limits/", body),
  change: (limit: t.Limit, body: object) => send<t.Limit>("PATCH", limitPath(limit), { body, query: teamOf(limit) }),
  remove: (limit: t.Limit) => send<void>("DELETE", limitPath(limit), { query: teamOf(limit) }),
};
const limitPath = ({ name }: t.Limit) => `/limits/${encodeURIComponent(name)}/`;
const teamOf = ({ team_id }: t.Limit): Query => ({ team_id });

export const calendars = {
  list: () => getNew<t.Page<t.Calendar>>("/calendars/", { limit: 200 }),
  create: (body: object) => post<t.Calendar>("/calendars/", body),
  change: (calendar: t.Calendar, body: object) =>
    send<t.Calendar>("PATCH", calendarPath(calendar), { body, query: ownerOf(calendar) }),
  remove: (calendar: t.Calendar) => send<void>("DELETE", calendarPath(calendar), { query: ownerOf(calendar) }),
};
const calendarPath = ({ name }: t.Calendar) => `/calendars/${encodeURIComponent(name)}/`;
const ownerOf = ({ owner }: t.Calendar): Query => ({ owner });

export const stats = {
  outcomes: (query: Query) => getNew<{ step: number; items: t.OutcomeStep[] }>("/stats/outcomes/", query),
  lateness: (query: Query) => getNew<{ step: number; items: t.LatenessStep[] }>("/stats/lateness/", query),
};

export const settings = {
  read: () => get<t.Settings>("/settings/"),
  change: (body: Partial<t.Settings>) => send<t.Settings>("PATCH", "/settings/", { body }),
};
