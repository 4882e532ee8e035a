/** One schedule: its strip, facts and actions, and tabs for explanation, runs, edit and history. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useTranslations } from "use-intl";
import { schedules } from "../api/client";
import { ApiError } from "../api/http";
import type { Schedule, Slot } from "../api/types";
import { Events } from "../audit/Events";
import { Explain } from "../explain/Explain";
import { hasChanged, movedIds } from "../live/pulse";
import { useInterval, usePulseEffect } from "../live/useLive";
import { RunTable } from "../runs/RunTable";
import { usePageKeys } from "../shell/shortcuts";
import { Missing } from "../shell/Shell";
import type { Measure } from "../strip/marks";
import { LargeStrip } from "../strip/Strip";
import { useSlots } from "../strip/useSlots";
import { Badge, Dialog, DialogFoot, Loaded, Loading, Name, Problem, RemoveDialog, ScopedButton, Sentence, Time, useAct } from "../ui/controls";
import { Editor } from "./Editor";
import { Backfill } from "./Backfill";
import { pauseOf } from "./healthDetail";
import { Skips } from "./Skips";
import { instantOf } from "./until";
import { UntilField } from "./UntilField";

const route = getRouteApi("/schedules/$id");
const TABS = ["explain", "runs", "edit", "history"] as const;
const REFRESH_MS = 5000;

export default function SchedulePage() {
  const { id } = route.useParams();
  const query = useQuery({
    queryKey: ["schedule", id],
    queryFn: () => schedules.read(id),
    refetchInterval: useInterval(REFRESH_MS),
  });
  if (query.error instanceof ApiError && query.error.status === 404) return <Missing />;
  if (query.error && !query.data) return <Problem error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Loading />;
  return <Page key={id} schedule={query.data.value} etag={query.data.etag} />;
}

function Page({ schedule, etag }: { schedule: Schedule; etag: string | null }) {
  const t = useTranslations();
  const { tab = "explain", at } = route.useSearch();
  const navigate = useNavigate();
  const show = (search: { tab?: string; at?: string }) =>
    void navigate({ to: "/schedules/$id", params: { id: schedule.id }, search });
  usePageKeys({ e: () => show({ tab: "explain", at }) });
  useLiveSchedule(schedule);
  return (
    <div className="page">
      <div className="head">
        <div className="tight">
          <div className="row">
            <h1>
              <Name>{schedule.name}</Name>
            </h1>
            <Badge word={schedule.health ?? schedule.status} kind={schedule.health ? "health" : "status"} />
          </div>
          <p>
            <Sentence zone={schedule.timezone}>{schedule.spec_description}</Sentence>
            {schedule.spec_description.includes(schedule.timezone) ? null : (
              <span className="soft"> ({schedule.timezone})</span>
            )}
          </p>
          {schedule.description ? (
            <p className="soft">
              <Name>{schedule.description}</Name>
            </p>
          ) : null}
        </div>
        <Actions schedule={schedule} />
      </div>
      <Strip schedule={schedule} at={at} onExplain={(slot) => show({ tab: "explain", at: slot.slot })} />
      <Facts schedule={schedule} />
      <div className="card stack">
        <nav className="tabs" aria-label={schedule.name}>
          {TABS.map((name) => (
            <Link
              key={name}
              to="/schedules/$id"
              params={{ id: schedule.id }}
              search={{ tab: name }}
              aria-current={tab === name ? "page" : undefined}
              activeProps={{}}
              activeOptions={{ exact: true, includeSearch: true }}
            >
              {t(`schedule.${name}`)}
            </Link>
          ))}
        </nav>
        {tab === "runs" ? <Runs schedule={schedule} /> : null}
        {tab === "edit" ? <Editor schedule={schedule} etag={etag} /> : null}
        {tab === "history" ? (
          <Events filter={{ object_type: "schedule", object_id: schedule.id }} zone={schedule.timezone} />
        ) : null}
        {tab === "explain" ? <Explain schedule={schedule} at={at} onAt={(time) => show({ tab, at: time })} /> : null}
      </div>
    </div>
  );
}

/** Asks for the schedule, its slots and its runs again when it is due, while it runs, and after a change. */
function useLiveSchedule(schedule: Schedule) {
  const client = useQueryClient();
  usePulseEffect((pulse, before) => {
    if (movedIds([schedule], pulse, before).length === 0) return;
    for (const key of ["schedule", "slots", "schedule-runs", "explain"])
      void client.invalidateQueries({ queryKey: [key, schedule.id] });
    if (hasChanged(pulse, before)) void client.invalidateQueries({ queryKey: ["audit"] });
  });
}

function Strip({ schedule, at, onExplain }: { schedule: Schedule; at?: string; onExplain: (slot: Slot) => void }) {
  const t = useTranslations("strip");
  const [measure, setMeasure] = useState<Measure>("plain");
  const query = useSlots(schedule.id);
  return (
    <section className="card stack" aria-label={t("label", { name: schedule.name })}>
      <div className="row">
        <h2 className="grow">{t("title")}</h2>
        <label className="row small soft">
          {t("height")}
          <select value={measure} onChange={(event) => setMeasure(event.target.value as Measure)}>
            {(["plain", "lateness", "duration"] as const).map((one) => (
              <option key={one} value={one}>
                {t(one)}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Loaded query={query}>
        {(slots) => (
          <LargeStrip
            slots={slots}
            name={schedule.name}
            zone={schedule.timezone}
            measure={measure}
            at={at}
            onExplain={onExplain}
          />
        )}
      </Loaded>
    </section>
  );
}

function Facts({ schedule }: { schedule: Schedule }) {
  const t = useTranslations("schedule");
  const labels = Object.entries(schedule.labels ?? {});
  return (
    <section className="card">
      <dl className="facts">
        <dt>{t("next")}</dt>
        <dd>
          {schedule.next_run_at ? (
            <Time at={schedule.next_run_at} zone={schedule.timezone} relative />
          ) : (
            <span className="soft">{t("nothing")}</span>
          )}
        </dd>
        <dt>{t("workflow")}</dt>
        <dd>
          <Link to="/workflows/$id" params={{ id: String(schedule.workflow_id) }}>
            <Name>{schedule.workflow_name ?? String(schedule.workflow_id)}</Name>
          </Link>
        </dd>
        <dt>{t("ifRunning")}</dt>
        <dd>
          <code>{schedule.if_running}</code> · {t("catchUp")} <code>{schedule.catch_up}</code> · {t("retries")}{" "}
          {schedule.current_retry}/{schedule.max_retries} · {t("timeout")} {schedule.timeout_seconds} s
        </dd>
        {schedule.status_reason ? (
          <>
            <dt>{t("why")}</dt>
            <dd>
              <code>{schedule.status_reason}</code>
              <PausedBy schedule={schedule} />
              {schedule.paused_until ? (
                <>
                  {" → "}
                  <Time at={schedule.paused_until} zone={schedule.timezone} />
                </>
              ) : null}
            </dd>
          </>
        ) : null}
        {schedule.last_error ? (
          <>
            <dt>{t("lastError")}</dt>
            <dd className="tone-bad">
              <Name>{schedule.last_error}</Name>
            </dd>
          </>
        ) : null}
        {labels.length ? (
          <>
            <dt>{t("labels")}</dt>
            <dd className="row">
              {labels.map(([key, value]) => (
                <span key={key} className="chip">
                  {key}={value}
                </span>
              ))}
            </dd>
          </>
        ) : null}
      </dl>
    </section>
  );
}

/** Who paused the schedule, when and why, if its strip names it. */
function PausedBy({ schedule }: { schedule: Schedule }) {
  const t = useTranslations("app");
  const pause = pauseOf(schedule, useSlots(schedule.id).data);
  if (!pause) return null;
  return (
    <>
      {pause.by ? (
        <>
          {" "}
          <Name>{t("by", { name: pause.by })}</Name>
        </>
      ) : null}{" "}
      · <Time at={pause.from} zone={schedule.timezone} relative />
      {pause.note ? (
        <>
          {" "}
          <q>
            <Name>{pause.note}</Name>
          </q>
        </>
      ) : null}
    </>
  );
}

function Actions({ schedule }: { schedule: Schedule }) {
  const t = useTranslations("schedule");
  const act = useAct();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [open, setOpen] = useState<"pause" | "skip" | "remove" | "backfill" | null>(null);
  const change = async (work: () => Promise<unknown>, done?: string) => {
    await act(work, done);
    await client.invalidateQueries();
  };
  const run = async () => {
    const started = await act(() => schedules.run(schedule.id));
    if (started) void navigate({ to: "/runs/$id", params: { id: started.id } });
  };
  const resume = () => void change(() => schedules.resume(schedule.id), t("resumed"));
  usePageKeys({
    p: () => (schedule.status === "paused" ? resume() : setOpen("pause")),
    r: () => void run(),
  });
  return (
    <div className="actions">
      <ScopedButton needs="operate" className="primary" onClick={() => void run()}>
        {t("run")}
      </ScopedButton>
      {schedule.status === "active" ? (
        <ScopedButton needs="operate" onClick={() => setOpen("pause")}>
          {t("pause")}
        </ScopedButton>
      ) : null}
      {schedule.status === "paused" ? (
        <ScopedButton needs="operate" onClick={resume}>
          {t("resume")}
        </ScopedButton>
      ) : null}
      {schedule.status === "dead" ? (
        <ScopedButton needs="operate" onClick={() => void change(() => schedules.revive(schedule.id))}>
          {t("revive")}
        </ScopedButton>
      ) : null}
      <ScopedButton needs="operate" onClick={() => setOpen("skip")}>
        {t("skip")}
      </ScopedButton>
      <ScopedButton needs="operate" onClick={() => setOpen("backfill")}>
        {t("backfill")}
      </ScopedButton>
      <ScopedButton needs="write" className="danger" onClick={() => setOpen("remove")}>
        {t("remove")}
      </ScopedButton>
      {open === "pause" ? (
        <PauseDialog
          schedule={schedule}
          onClose={() => setOpen(null)}
          onPause={(body) => void change(() => schedules.pause(schedule.id, body), t("paused"))}
        />
      ) : null}
      {open === "skip" ? <Skips schedule={schedule} onClose={() => setOpen(null)} /> : null}
      {open === "backfill" ? <Backfill schedule={schedule} onClose={() => setOpen(null)} /> : null}
      {open === "remove" ? (
        <RemoveDialog
          text={t("removeText", { name: schedule.name })}
          onClose={() => setOpen(null)}
          onRemove={() =>
            void change(() => schedules.remove(schedule.id), t("removed")).then(() => navigate({ to: "/schedules" }))
          }
        />
      ) : null}
    </div>
  );
}

function PauseDialog(props: {
  schedule: Schedule;
  onClose: () => void;
  onPause: (body: { note?: string; until?: string }) => void;
}) {
  const t = useTranslations();
  const [note, setNote] = useState("");
  const [until, setUntil] = useState("");
  function submit() {
    props.onPause({
      ...(note ? { note } : {}),
      ...(until ? { until: instantOf(until) } : {}),
    });
    props.onClose();
  }
  return (
    <Dialog title={t("schedule.pauseTitle", { name: props.schedule.name })} onClose={props.onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <label className="field">
          <span>{t("app.note")}</span>
          <input autoFocus value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
        </label>
        <UntilField value={until} onChange={setUntil} />
        <DialogFoot label={t("schedule.pause")} onClose={props.onClose} />
      </form>
    </Dialog>
  );
}

function Runs({ schedule }: { schedule: Schedule }) {
  const t = useTranslations("schedule");
  const query = useQuery({
    queryKey: ["schedule-runs", schedule.id],
    queryFn: () => schedules.runs(schedule.id, 50),
    refetchInterval: useInterval(REFRESH_MS),
  });
  return (
    <Loaded query={query}>
      {(page) =>
        page.items.length ? (
          <RunTable runs={page.items} zone={schedule.timezone} />
        ) : (
          <p className="soft">{t("noRuns")}</p>
        )
      }
    </Loaded>
  );
}
