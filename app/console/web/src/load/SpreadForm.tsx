/** A proposal that lowers the peak: look at what it changes, apply it as operations, undo it. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { bulk, fleet, schedules } from "../api/client";
import type { Operation, Spread } from "../api/types";
import { WhatWasNotDone } from "../schedules/BulkBar";
import { Name, Problem, ScopedButton, useAct, useZone } from "../ui/controls";
import { instantText } from "../ui/time";
import { changeGroups, pauseMs, sumOf, toRead, withNewer, type SpreadChange } from "./spread";

const SHOWN = 50;
const PROGRESS_MS = 700;
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export function SpreadForm(props: { proposal: Spread | null; onProposal: (proposal: Spread | null) => void }) {
  const { proposal, onProposal } = props;
  const t = useTranslations("load");
  const [minutes, setMinutes] = useState("10");
  const [byJitter, setByJitter] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [operations, setOperations] = useState<Operation[]>([]);
  async function submit(event: FormEvent) {
    event.preventDefault();
    setError(null);
    setOperations([]);
    try {
      onProposal(await fleet.spread({ max_shift_seconds: Number(minutes) * 60, by_jitter: byJitter }));
    } catch (problem) {
      setError(problem);
    }
  }
  return (
    <section className="card stack" aria-label={t("spread")}>
      <h2>{t("spread")}</h2>
      <p className="soft">{t("spreadText")}</p>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <label className="field">
          <span>{t("shift")}</span>
          <input
            type="number"
            required
            min={1}
            max={1440}
            value={minutes}
            onChange={(event) => setMinutes(event.target.value)}
          />
        </label>
        <label className="row">
          <input type="checkbox" checked={byJitter} onChange={(event) => setByJitter(event.target.checked)} />
          {t("byJitter")}
        </label>
        <div className="actions">
          <button type="submit" className={proposal ? "" : "primary"}>
            {t("propose")}
          </button>
          {proposal ? (
            <button type="button" onClick={() => onProposal(null)}>
              {t("reset")}
            </button>
          ) : null}
        </div>
      </form>
      {error ? <Problem error={error} /> : null}
      {proposal ? (
        <Proposal
          proposal={proposal}
          onApplied={(started) => {
            onProposal(null);
            setOperations(started);
          }}
        />
      ) : null}
      {operations.length ? <Applied operations={operations} onUndo={setOperations} /> : null}
    </section>
  );
}

function Proposal({ proposal, onApplied }: { proposal: Spread; onApplied: (operations: Operation[]) => void }) {
  const t = useTranslations("load");
  const zone = useZone();
  const act = useAct();
  const [sent, setSent] = useState<number | null>(null);
  const { before, after, changes } = proposal;
  const groups = changeGroups(changes);
  async function apply() {
    const started: Operation[] = [];
    for (const { ids, fields } of groups) {
      setSent(started.length);
      const note = t("spreadNote", { at: instantText(before.at, zone) });
      const one = await act(() => bulk.start({ action: "set", ids, arguments: { fields }, note, expect_count: ids.length }));
      if (!one) break;
      started.push(one);
      await wait(pauseMs(groups.length));
    }
    setSent(null);
    if (started.length) onApplied(started);
  }
  if (changes.length === 0) return <p className="note">{t("noProposal", { count: before.fires })}</p>;
  return (
    <div className="stack">
      <p className="note sentence" role="status">
        {t("proposal", { before: before.fires, after: after.fires, count: changes.length })}
      </p>
      <ProposalTable changes={changes} />
      <div className="actions">
        <ScopedButton needs="write" className="primary" disabled={sent !== null} onClick={() => void apply()}>
          {t("apply", { count: changes.length })}
        </ScopedButton>
        {sent === null ? null : <progress max={groups.length} value={sent} aria-label={t("sending")} />}
      </div>
    </div>
  );
}

/** What each schedule has now and would have then. */
function ProposalTable({ changes }: { changes: SpreadChange[] }) {
  const t = useTranslations("load");
  const shown = changes.slice(0, SHOWN);
  const ids = shown.map(({ id }) => id).join(",");
  const fields = [...new Set(shown.flatMap(({ set }) => Object.keys(set)))];
  const stored = useQuery({
    queryKey: ["spread-now", ids],
    queryFn: () => schedules.list({ ids, fields: ["id", ...fields].join(","), limit: SHOWN }),
    retry: false,
    gcTime: 0,
  });
  const now = new Map(stored.data?.items.map((row) => [row.id, row as unknown as Record<string, unknown>]));
  return (
    <div className="scroll proposal">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">{t("schedule")}</th>
            <th scope="col">{t("now")}</th>
            <th scope="col">{t("then")}</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ id, name, set }) => (
            <tr key={id}>
              <td>
                <Link to="/schedules/$id" params={{ id }}>
                  <Name>{name}</Name>
                </Link>
              </td>
              {[now.get(id) ?? {}, set].map((values, column) => (
                <td key={column} className="mono small">
                  {Object.keys(set)
                    .map((field) => textOf(field, values[field]))
                    .join(", ")}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {changes.length > SHOWN ? <p className="soft small">{t("moreChanges", { count: changes.length - SHOWN })}</p> : null}
    </div>
  );
}

/** A cron expression by itself; other values with the names of their fields. */
function textOf(field: string, value: unknown): string {
  if (value === undefined) return "…";
  return field === "cron" ? String(value) : `${field} ${value === null ? "–" : String(value)}`;
}

/** Operations as they are now: a few of those under way are asked for in each turn. */
function useLatest(operations: Operation[]): Operation[] {
  const client = useQueryClient();
  const turn = useRef(0);
  const queryKey = ["spread-operations", operations.map(({ id }) => id)];
  const query = useQuery({
    queryKey,
    queryFn: async () => {
      const known = client.getQueryData<Operation[]>(queryKey) ?? operations;
      turn.current += 1;
      return withNewer(known, await Promise.all(toRead(known, turn.current).map(({ id }) => bulk.read(id))));
    },
    initialData: operations,
    refetchInterval: ({ state }) => (sumOf(state.data ?? operations).isUnderWay ? PROGRESS_MS : false),
  });
  return query.data;
}

/** The operations that apply a proposal, from their start to their end, with their undo. */
function Applied({ operations, onUndo }: { operations: Operation[]; onUndo: (operations: Operation[]) => void }) {
  const t = useTranslations();
  const act = useAct();
  const client = useQueryClient();
  const latest = useLatest(operations);
  const sum = sumOf(latest);
  const { done, failed, skipped, total, isUnderWay } = sum;
  useEffect(() => {
    if (!isUnderWay) void client.invalidateQueries({ queryKey: ["forecast"] });
  }, [isUnderWay, client]);
  async function undo() {
    const undone: Operation[] = [];
    const undoable = latest.filter((one) => one.undoable);
    for (const one of undoable) {
      const started = await act(() => bulk.undo(one.id));
      if (started) undone.push(started);
      await wait(pauseMs(undoable.length));
    }
    if (undone.length) onUndo(undone);
  }
  const isUndo = latest.some(({ action }) => action === "undo");
  return (
    <div className="note stack">
      <progress max={Math.max(1, total)} value={isUnderWay ? done + skipped + failed : total} aria-label={t("load.spread")} />
      <p role="status">
        <strong>
          {isUnderWay ? t("bulk.underWay") : t(isUndo ? "bulk.undoEnded" : "bulk.ended", { status: sum.status })}
        </strong>{" "}
        {t("bulk.progress", { done, total, failed })}
      </p>
      <WhatWasNotDone operation={sum} />
      {!isUnderWay && latest.some(({ undoable }) => undoable) ? (
        <div className="actions">
          <ScopedButton needs="write" onClick={() => void undo()}>
            {t("bulk.undo")}
          </ScopedButton>
        </div>
      ) : null}
    </div>
  );
}
