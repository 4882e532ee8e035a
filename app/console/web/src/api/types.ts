/** The shapes of the API that the console uses. Values of enums are strings: a newer server may send unknown ones. */

export type Instant = string;

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
  total?: number;
  total_is_estimate?: boolean;
}

export interface User {
  id: number;
  username: string;
  role: string;
}

export interface CurrentSession {
  user: User;
  role: string;
  scopes: string[];
  expires_at: Instant | null;
  logout_url: string | null;
}

export interface Session {
  id: number;
  is_current: boolean;
  address: string;
  user_agent: string;
  created_at: Instant;
  seen_at: Instant;
  expires_at: Instant;
}

export interface Schedule {
  id: string;
  name: string;
  description: string;
  workflow_id: number;
  workflow_name?: string;
  trigger_node_id: string | null;
  user_profile_id: number;
  owner_kind: string;
  owner_id: string;
  interval_seconds: number | null;
  every: string | null;
  cron: string | null;
  at: Instant | null;
  after: string | null;
  rrule?: string | null;
  timezone: string;
  jitter_seconds: number;
  only_between: string | null;
  not_on: string[];
  exclude_calendars?: string[];
  only_calendars?: string[];
  start_at: Instant | null;
  end_at: Instant | null;
  spec_description: string;
  total_repeats: number;
  max_retries: number;
  backoff_base_seconds: number | null;
  timeout_seconds: number;
  catch_up: string;
  misfire_grace_seconds: number;
  if_running: string;
  max_queued: number;
  trigger_payload?: Record<string, unknown>;
  labels?: Record<string, string>;
  key?: string | null;
  health?: string;
  status: string;
  status_reason: string;
  paused_until?: Instant | null;
  current_repeat: number;
  current_retry: number;
  run_count: number;
  error_count: number;
  next_run_at: Instant | null;
  last_error: string;
  last_outcome: string | null;
  last_attempt_at: Instant | null;
  last_success_at: Instant | null;
  lease_id?: number | null;
  limit?: string | null;
  created_at: Instant;
  updated_at: Instant;
}

export interface Slot {
  slot: Instant;
  outcome: string;
  status?: string | null;
  reason?: string | null;
  lateness_ms?: number | null;
  duration_ms?: number | null;
  attempts?: number | null;
  execution_id?: string | null;
  trigger?: string | null;
  from?: Instant;
  to?: Instant;
  count?: number;
}

export interface Span {
  kind: string;
  from: Instant;
  to: Instant | null;
  by?: string | null;
  note?: string | null;
}

export interface Slots {
  items: Slot[];
  spans: Span[];
  next_cursor?: string | null;
}

export interface Check {
  check: string;
  passed: boolean;
  detail: string;
}

export interface Explanation {
  slot: Instant | null;
  outcome: string;
  sentence: string;
  execution_id: string | null;
  checks: Check[];
  /** Older servers do not say how the schedule was. */
  then?: ScheduleThen | null;
}

/** A schedule as it was at the time of a slot. */
export interface ScheduleThen {
  since: Instant;
  by: string;
  note: string;
  spec_description: string;
  timezone: string;
  status: string;
  changes: Record<string, { from: unknown; to: unknown }>;
}

export interface Preview {
  description: string;
  warnings: string[];
  next_runs: { at: Instant; note: string }[];
}

/** A fire: when it is due, and its slot, which differs by the jitter. */
export interface Fire {
  at: Instant;
  slot: Instant;
}

export interface Plan {
  plan_id: string;
  changes: Record<string, unknown>;
  fires_now: boolean;
  next_run_at: { from: Instant | null; to: Instant | null };
  slots: { until: Instant; kept: number; added: Fire[]; removed: Fire[]; moved: { from: Fire; to: Fire }[] };
  warnings: string[];
}

export interface Execution {
  id: string;
  workflow_id: number | null;
  scheduled_job_id: string | null;
  trigger: string;
  status: string;
  waiting_for?: string | null;
  repeat_number: number;
  retry_attempt: number;
  scheduled_for: Instant;
  started_at: Instant | null;
  finished_at: Instant | null;
  duration_ms: number | null;
  error: string;
}

export interface NodeResult {
  node_id: string;
  type: string;
  status: string;
  output: unknown;
  error: string;
  started_at: Instant;
  finished_at: Instant | null;
}

export interface ExecutionDetail extends Execution {
  payload: Record<string, unknown>;
  nodes: NodeResult[];
  trace_url?: string | null;
}

export interface WorkflowNode {
  id: string;
  type: string;
  config: Record<string, unknown>;
}

export interface Workflow {
  id: number;
  name: string;
  nodes: WorkflowNode[];
  edges: { from: string; to: string }[];
  active: boolean;
  max_concurrent_runs: number | null;
  breaker_threshold: number | null;
  breaker_reset_seconds: number | null;
  created_at: Instant;
  updated_at: Instant;
}

export interface Action {
  name: string;
  kind: string;
  title: string;
  description: string;
  category: string;
  icon: string;
  color: string;
  origin: string;
  config_schema: Record<string, unknown>;
}

export interface Breaker {
  workflow_id: number;
  workflow_name: string;
  state: string;
  failure_count: number;
  opened_at: Instant | null;
  half_opens_at: Instant | null;
  breaker_threshold: number | null;
  breaker_reset_seconds: number | null;
}

export interface BreakerDetail extends Breaker {
  transitions: { at: Instant; from_state: string; to_state: string; reason: string }[];
}

export interface Attention {
  kind: string;
  object_type: string;
  id: string | null;
  name: string;
  since: Instant | null;
  sentence: string;
}

export interface Overview {
  counts: { status: Record<string, number>; health: Record<string, number> };
  due: number;
  oldest_overdue_seconds: number | null;
  running: number;
  workers: number;
  mode: string;
  schedules_enabled: boolean;
  attention: Attention[];
}

export interface OutcomeStep {
  at: Instant;
  outcomes: Record<string, number>;
}

export interface LatenessStep {
  at: Instant;
  count: number;
  p50_ms: number | null;
  p99_ms: number | null;
}

export interface Worker {
  id: string;
  name: string;
  started_at: Instant;
  lease_expires_at: Instant;
  is_live: boolean;
  running: number;
}

/** A span in which a calendar leaves slots out. */
export interface ClosedSpan {
  from: Instant;
  to: Instant;
  calendar: string;
  entry: string;
}

export interface Forecast {
  buckets: { at: Instant; fires: number; busy_seconds: number }[];
  groups: { key: string | number | null; name: string; fires: number; busy_seconds: number; buckets: number[] }[];
  peak: { at: Instant; fires: number };
  quiet: { from: Instant; to: Instant }[];
  /** Older servers do not name them. */
  closed?: ClosedSpan[];
  is_estimate: boolean;
}

export interface Spread {
  before: { at: Instant; fires: number };
  after: { at: Instant; fires: number };
  changes: { id: string; name: string; set: Record<string, unknown> }[];
  is_estimate: boolean;
}

export interface Upcoming {
  at: Instant;
  slot: Instant;
  schedule_id: string;
  schedule_name: string;
  workflow_id: number;
  workflow_name: string;
  timezone: string;
}

export interface UpcomingList {
  items: Upcoming[];
  /** False if `limit` or the time of the search ended the list. */
  is_complete: boolean;
}

export interface BulkRequest {
  action: string;
  ids?: string[];
  filter?: Record<string, unknown>;
  arguments?: Record<string, unknown>;
  note?: string;
  expect_count?: number;
}

export interface BulkPlan {
  count: number;
  would_change?: number;
  by_status: Record<string, number>;
  skipped: { reason: string; count: number }[];
}

export interface Operation {
  id: string;
  action: string;
  status: string;
  by: string;
  note: string;
  total: number;
  done: number;
  skipped: number;
  skipped_reasons: { reason: string; count: number }[];
  failed: number;
  errors: { schedule_id: string; message: string }[];
  error: string;
  undoable: boolean;
  undo_of: string | null;
  undone_by: string | null;
  created_at: Instant;
  finished_at: Instant | null;
}

export interface BackfillPlan {
  count: number;
  slots: { slot: Instant; outcome: string }[];
  estimate_seconds: number;
}

export interface Settings {
  schedules_enabled: boolean;
  ping_sitemap_on_run: boolean;
  sitemap_urls: string[];
}

export interface AuditEvent {
  at: Instant;
  actor: string | null;
  on_behalf_of: string | null;
  via: string;
  action: string;
  object_type: string;
  object_id: string | null;
  object_name: string | null;
  changes: Record<string, unknown> | null;
  note: string | null;
  request_id: string | null;
  address: string | null;
}

export interface Found {
  type: string;
  id: string | number;
  name: string;
  status: string | null;
  match: string | null;
}

export interface Lease {
  id: number;
  agent: string;
  purpose: string;
  status: string;
  owner: string;
  granted_by: string;
  expires_at: Instant;
  max_schedules: number;
  max_runs: number;
  max_retries: number;
  min_interval_seconds: number;
  /** 0 is no bound. */
  max_writes: number;
  workflows: number[];
  review: string;
  at_end: string;
}

export interface LeaseDetail extends Lease {
  used: { schedules: number; runs: number; writes: number };
  schedule_ids: string[];
  awaiting_review: string[];
}

export interface Limit {
  name: string;
  user_profile_id: number;
  team_id: number | null;
  public: boolean;
  max_concurrent: number | null;
  rate: string | null;
  burst: number | null;
  held: number;
  waiting: number;
}

export interface Calendar {
  name: string;
  owner: number;
  team_id: number | null;
  public: boolean;
  timezone: string;
  dates: string[];
  ics: string | null;
  holidays: string | null;
}
