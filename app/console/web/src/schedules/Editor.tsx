/** The editor of a schedule: the form, and beside it what the server says of every key stroke. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useState, type FormEvent, type ReactNode } from "react";
import { useTranslations } from "use-intl";
import { fleet, schedules, workflows } from "../api/client";
import { ApiError } from "../api/http";
import type { Fire, Plan, Preview, Schedule } from "../api/types";
import { Problem, ScopedButton, Sentence, Time, useToast } from "../ui/controls";
import { bodyOf, changesOf, creationOf, EMPTY, formOf, KINDS, payloadOf, specOf, type Form, type Kind } from "./form";

const newRoute = getRouteApi("/schedules/new");
const TYPING_MS = 300;
const DRAFT = "carillon-draft-schedule";

export function NewSchedule() {
  const t = useTranslations("editor");
  const { workflow = "" } = newRoute.useSearch();
  return (
    <div className="page">
      <h1>{t("create")}</h1>
      <div className="card">
        <Editor initial={{ ...EMPTY, workflow_id: workflow }} />
      </div>
    </div>
  );
}

interface Conflict {
  theirs: Schedule;
  etag: string | null;
}

export function Editor(props: { schedule?: Schedule; etag?: string | null; initial?: Form }) {
  const t = useTranslations("editor");
  const app = useTranslations("app");
  const toast = useToast();
  const client = useQueryClient();
  const navigate = useNavigate();
  // What is being edited stays as it was opened: the page behind it is refreshed every few seconds.
  const [opened, setOpened] = useState({ schedule: props.schedule, etag: props.etag });
  const [form, setForm] = useState<Form>(() => (props.schedule ? formOf(props.schedule) : draftOr(props.initial ?? EMPTY)));
  const [error, setError] = useState<unknown>(null);
  const [conflict, setConflict] = useState<Conflict | null>(null);
  const [busy, setBusy] = useState(false);
  const [isPlanOutdated, setPlanOutdated] = useState(false);
  const settled = useSettled(form, TYPING_MS);
  const plan = usePlan(settled, opened.schedule);
  useEffect(() => {
    if (!props.schedule) sessionStorage.setItem(DRAFT, JSON.stringify(form));
  }, [form, props.schedule]);
  const set = (name: keyof Form) => (value: string) => setForm((before) => ({ ...before, [name]: value }));

  /** Saves what differs, by the plan that is shown if it is one of this very edit. */
  async function save(etag: string | null | undefined, isAsPlanned: boolean) {
    setBusy(true);
    setError(null);
    setPlanOutdated(false);
    try {
      if (opened.schedule) {
        const changes = changesOf(form, opened.schedule);
        const planned = isAsPlanned && plan.isOf(changes) ? plan.data?.plan_id : undefined;
        const body = planned ? { ...changes, plan_id: planned } : changes;
        const answer = await schedules.change(opened.schedule.id, body, etag);
        setOpened({ schedule: answer.value, etag: answer.etag });
        setForm(formOf(answer.value));
        await client.invalidateQueries();
      } else {
        const made = await schedules.create(creationOf(form));
        sessionStorage.removeItem(DRAFT);
        await navigate({ to: "/schedules/$id", params: { id: made.id } });
      }
      setConflict(null);
      toast(t("saved"));
    } catch (problem) {
      const isOutdated = problem instanceof ApiError && problem.code === "plan_outdated";
      const isStale = isOutdated || (problem instanceof ApiError && problem.status === 412);
      if (isStale && opened.schedule) {
        const [{ value, etag: latest }] = await Promise.all([schedules.read(opened.schedule.id), plan.refetch()]);
        // A plan also expires; then nobody has changed anything.
        if (latest === opened.etag) setPlanOutdated(true);
        else setConflict({ theirs: value, etag: latest });
      } else setError(problem);
    } finally {
      setBusy(false);
    }
  }
  function submit(event: FormEvent) {
    event.preventDefault();
    if (payloadOf(form) !== null) void save(opened.etag, true);
  }
  return (
    <form className="two" onSubmit={submit}>
      <div className="stack">
        <Fields form={form} set={set} error={error} />
        {error ? <Problem error={error} /> : null}
        {conflict ? (
          <ConflictView
            conflict={conflict}
            form={form}
            onTheirs={() => {
              setOpened({ schedule: conflict.theirs, etag: conflict.etag });
              setForm(formOf(conflict.theirs));
              setConflict(null);
            }}
            onMine={() => void save(conflict.etag, false)}
          />
        ) : null}
        {isPlanOutdated ? (
          <p className="note warn" role="alert">
            {t("planOutdated")}
          </p>
        ) : null}
        <div className="actions">
          <ScopedButton needs="write" type="submit" className="primary" disabled={busy}>
            {app("save")}
          </ScopedButton>
        </div>
      </div>
      <div className="stack">
        <PreviewView form={settled} id={opened.schedule?.id} />
        {opened.schedule ? <PlanView plan={plan} zone={opened.schedule.timezone} /> : null}
      </div>
    </form>
  );
}

function draftOr(initial: Form): Form {
  try {
    const draft = JSON.parse(sessionStorage.getItem(DRAFT) ?? "null") as Form | null;
    return draft ? { ...initial, ...draft, workflow_id: initial.workflow_id || draft.workflow_id } : initial;
  } catch {
    return initial;
  }
}

function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

function Fields({ form, set, error }: { form: Form; set: (name: keyof Form) => (value: string) => void; error: unknown }) {
  const t = useTranslations("editor");
  const errorOf = (...names: string[]) =>
    error instanceof ApiError ? error.errors.find((one) => names.includes(one.field))?.message : undefined;
  const text = (name: keyof Form, label: string, extra: { hint?: string; list?: string; required?: boolean } = {}) => (
    <Field label={label} hint={extra.hint} error={errorOf(name)}>
      <input
        value={form[name]}
        required={extra.required}
        list={extra.list}
        onChange={(event) => set(name)(event.target.value)}
      />
    </Field>
  );
  const choice = (name: keyof Form, label: string, values: readonly string[]) => (
    <Field label={label} error={errorOf(name)}>
      <select value={form[name]} onChange={(event) => set(name)(event.target.value)}>
        {[...new Set([...values, form[name]])].map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </Field>
  );
  const hints: Record<Kind, string> = { cron: t("cronHint"), every: t("everyHint"), at: t("atHint"), rrule: "FREQ=WEEKLY;BYDAY=MO" };
  return (
    <>
      {text("name", t("name"), { required: true })}
      {text("description", t("description"))}
      <WorkflowField value={form.workflow_id} onChange={set("workflow_id")} error={errorOf("workflow_id")} />
      <div className="fields">
        <Field label={t("kind")}>
          <select value={form.kind} onChange={(event) => set("kind")(event.target.value)}>
            {KINDS.map((kind) => (
              <option key={kind} value={kind}>
                {t(kind)}
              </option>
            ))}
          </select>
        </Field>
        {text("timezone", t("timezone"), { list: "timezones", required: true })}
      </div>
      <Field label={t(form.kind)} hint={hints[form.kind]} error={errorOf(form.kind)}>
        <input
          className="mono"
          value={form.spec}
          required
          spellCheck={false}
          onChange={(event) => set("spec")(event.target.value)}
        />
      </Field>
      <Timezones />
      <details>
        <summary>{t("more")}</summary>
        <div className="fields">
          {text("jitter_seconds", t("jitter"))}
          {text("only_between", t("between"))}
          {text("not_on", t("notOn"))}
          {text("exclude_calendars", t("excludeCalendars"))}
          {text("only_calendars", t("onlyCalendars"))}
          {text("start_at", t("start"))}
          {text("end_at", t("end"))}
          {text("total_repeats", t("repeats"))}
          {text("max_retries", t("retries"))}
          {text("timeout_seconds", t("timeout"))}
          {choice("if_running", t("ifRunning"), ["skip", "queue", "cancel", "allow"])}
          {choice("catch_up", t("catchUp"), ["skip", "run_once", "run_all"])}
        </div>
        {text("labels", t("labels"))}
        {text("limit", t("limit"))}
        <Field label={t("payload")} error={payloadOf(form) === null ? t("badJson") : errorOf("trigger_payload")}>
          <textarea
            rows={4}
            spellCheck={false}
            value={form.payload}
            onChange={(event) => set("payload")(event.target.value)}
          />
        </Field>
      </details>
    </>
  );
}

function Field({ label, hint, error, children }: { label: string; hint?: string; error?: string; children: ReactNode }) {
  return (
    <label className="field">
      <span>{label}</span>
      {children}
      {hint ? <span className="soft small">{hint}</span> : null}
      {error ? (
        <span className="error small" role="alert">
          {error}
        </span>
      ) : null}
    </label>
  );
}

function WorkflowField({ value, onChange, error }: { value: string; onChange: (value: string) => void; error?: string }) {
  const t = useTranslations("editor");
  const query = useQuery({ queryKey: ["workflow-names"], queryFn: () => workflows.list({ limit: 200 }) });
  const items = query.data?.items ?? [];
  useEffect(() => {
    const first = items[0];
    if (!value && first) onChange(String(first.id));
  }, [value, items, onChange]);
  return (
    <Field label={t("workflow")} error={error}>
      <select value={value} required onChange={(event) => onChange(event.target.value)}>
        {items.every((item) => String(item.id) !== value) ? <option value={value}>{value}</option> : null}
        {items.map((item) => (
          <option key={item.id} value={item.id}>
            {item.name} ({item.id})
          </option>
        ))}
      </select>
    </Field>
  );
}

function Timezones() {
  const query = useQuery({ queryKey: ["timezones"], queryFn: fleet.timezones, staleTime: Infinity, retry: false });
  const names = query.data?.items.map((one) => (typeof one === "string" ? one : one.name)) ?? Intl.supportedValuesOf("timeZone");
  return (
    <datalist id="timezones">
      {names.map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  );
}

function PreviewView({ form, id }: { form: Form; id?: string }) {
  const t = useTranslations("editor");
  const body = { ...specOf(form), count: 10, ...(id ? { id } : {}) };
  const query = useQuery({
    queryKey: ["preview", body],
    queryFn: () => schedules.preview(body),
    retry: false,
    placeholderData: (before: Preview | undefined) => before,
  });
  return (
    <section aria-label={t("preview")} className="stack" aria-live="polite">
      <h2>{t("preview")}</h2>
      {query.error ? <Problem error={query.error} /> : null}
      {query.data && !query.error ? (
        <>
          <p className="sentence">
            <Sentence zone={form.timezone}>{query.data.description}</Sentence>
          </p>
          {query.data.warnings.length ? (
            <div className="note warn">
              <strong>{t("warnings")}</strong>
              <ul>
                {query.data.warnings.map((warning) => (
                  <li key={warning}>{warning}</li>
                ))}
              </ul>
            </div>
          ) : null}
          <h2>{t("nextRuns")}</h2>
          {query.data.next_runs.length === 0 ? <p>{t("never")}</p> : null}
          <ol className="next-runs">
            {query.data.next_runs.map((run) => (
              <li key={run.at}>
                <Time at={run.at} zone={form.timezone} />
                {run.note ? <span className="chip tone-warn">{run.note}</span> : null}
              </li>
            ))}
          </ol>
        </>
      ) : null}
    </section>
  );
}

interface PlannedEdit {
  data: Plan | undefined;
  error: unknown;
  isTouched: boolean;
  /** Whether the plan is one of these changes. */
  isOf: (changes: object) => boolean;
  refetch: () => Promise<unknown>;
}

/** The plan of an edit, which the server makes anew after each pause in typing. */
function usePlan(form: Form, schedule: Schedule | undefined): PlannedEdit {
  const changes = schedule ? changesOf(form, schedule) : {};
  const isTouched = Object.keys(changes).length > 0;
  const query = useQuery({
    queryKey: ["plan", schedule?.id, changes],
    queryFn: () => schedules.plan(schedule?.id ?? "", changes),
    enabled: isTouched,
    retry: false,
    gcTime: 0,
  });
  const isOf = (wanted: object) => JSON.stringify(wanted) === JSON.stringify(changes);
  return { data: query.data, error: query.error, isTouched, isOf, refetch: query.refetch };
}

/** What an edit does to the slots to come, compared with what is stored. */
function PlanView({ plan, zone }: { plan: PlannedEdit; zone: string }) {
  const t = useTranslations("editor");
  return (
    <section aria-label={t("plan")} className="stack" aria-live="polite">
      <h2>{t("plan")}</h2>
      {plan.isTouched ? null : <p className="soft">{t("planNone")}</p>}
      {plan.isTouched && plan.error ? <Problem error={plan.error} /> : null}
      {plan.isTouched && plan.data ? <PlanText plan={plan.data} zone={zone} /> : null}
    </section>
  );
}

const SHOWN_SLOTS = 5;

function PlanText({ plan, zone }: { plan: Plan; zone: string }) {
  const t = useTranslations("editor");
  const { kept, added, moved, removed } = plan.slots;
  const lines: [string, number, { from?: Fire; to: Fire }[]][] = [
    [t("added", { count: added.length }), added.length, added.map((to) => ({ to }))],
    [t("moved", { count: moved.length }), moved.length, moved],
    [t("removed", { count: removed.length }), removed.length, removed.map((to) => ({ to }))],
  ];
  return (
    <div className="stack">
      {plan.fires_now ? <div className="note warn">{t("firesNow")}</div> : null}
      {plan.warnings.length ? (
        <ul className="note warn">
          {plan.warnings.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
      ) : null}
      <p>
        <Time at={plan.next_run_at.from} zone={zone} /> → <Time at={plan.next_run_at.to} zone={zone} />
      </p>
      <p className="soft small">
        {t("planUntil")} <Time at={plan.slots.until} zone={zone} />
      </p>
      <ul>
        <li>{t("kept", { count: kept })}</li>
        {lines
          .filter(([, count]) => count > 0)
          .map(([text, count, fires]) => (
            <li key={text}>
              {text}
              <ul className="soft small">
                {fires.slice(0, SHOWN_SLOTS).map(({ from, to }) => (
                  <li key={to.slot}>
                    {from ? (
                      <>
                        <Time at={from.at} zone={zone} /> →{" "}
                      </>
                    ) : null}
                    <Time at={to.at} zone={zone} />
                  </li>
                ))}
                {count > SHOWN_SLOTS ? <li>…</li> : null}
              </ul>
            </li>
          ))}
      </ul>
    </div>
  );
}

function ConflictView(props: { conflict: Conflict; form: Form; onTheirs: () => void; onMine: () => void }) {
  const t = useTranslations("editor");
  const theirs = bodyOf(formOf(props.conflict.theirs));
  const yours = bodyOf(props.form);
  const fields = Object.keys(yours).filter((name) => JSON.stringify(yours[name]) !== JSON.stringify(theirs[name]));
  return (
    <div className="note warn stack" role="alert">
      <strong>{t("conflict")}</strong>
      <table className="plain">
        <thead>
          <tr>
            <th scope="col" />
            <th scope="col">{t("theirs")}</th>
            <th scope="col">{t("yours")}</th>
          </tr>
        </thead>
        <tbody>
          {fields.map((name) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{JSON.stringify(theirs[name])}</td>
              <td>{JSON.stringify(yours[name])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <div className="actions">
        <button type="button" onClick={props.onTheirs}>
          {t("takeTheirs")}
        </button>
        <button type="button" className="primary" onClick={props.onMine}>
          {t("overwrite")}
        </button>
      </div>
    </div>
  );
}
