/** Granting a lease, giving it other terms, and taking schedules out of it. */

import { useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { leases } from "../api/client";
import type { Lease, LeaseDetail } from "../api/types";
import { OWN_ZONE } from "../preferences";
import { useScheduleNames } from "../runs/useScheduleNames";
import { Dialog, DialogFoot, Name, Problem, ScopedButton, useAct, useCopy, useToast } from "../ui/controls";
import { bodyOf, ENDS, newTerms, NUMBERS, REVIEWS, termsOf, type NumberTerm, type Terms } from "./terms";

const LABELS = {
  max_schedules: "mostSchedules",
  max_runs: "mostRuns",
  max_retries: "retries",
  min_interval_seconds: "intervalSeconds",
  max_writes: "mostWrites",
} as const satisfies Record<NumberTerm, string>;
/** The least value of each number; 0 changes are no bound. */
const LEAST: Record<NumberTerm, number> = {
  max_schedules: 0,
  max_runs: 0,
  max_retries: 0,
  min_interval_seconds: 1,
  max_writes: 0,
};

/** The button that grants a lease, and the token of the agent, which is shown once. */
export function Grant() {
  const t = useTranslations("agents");
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const [token, setToken] = useState<string | null>(null);
  const close = () => {
    setOpen(false);
    setToken(null);
  };
  async function grant(agent: string, terms: Terms) {
    const granted = await leases.grant({ agent, ...bodyOf(terms) });
    setToken(granted.token);
    await client.invalidateQueries({ queryKey: ["leases"] });
  }
  return (
    <>
      <ScopedButton needs="write" className="primary" onClick={() => setOpen(true)}>
        {t("grant")}
      </ScopedButton>
      {open ? (
        <Dialog title={t("grant")} onClose={close}>
          {token === null ? (
            <TermsForm terms={newTerms(Date.now())} isNew label={t("grantIt")} onSave={grant} onClose={close} />
          ) : (
            <Token token={token} onClose={close} />
          )}
        </Dialog>
      ) : null}
    </>
  );
}

function Token({ token, onClose }: { token: string; onClose: () => void }) {
  const t = useTranslations();
  const copy = useCopy();
  return (
    <>
      <p>{t("agents.tokenOnce")}</p>
      <pre tabIndex={0} className="token" aria-label={t("agents.token")}>
        {token}
      </pre>
      <div className="actions">
        <button
          type="button"
          className="primary"
          onClick={() => void copy(token)}
        >
          {t("agents.copyToken")}
        </button>
        <button type="button" onClick={onClose}>
          {t("app.close")}
        </button>
      </div>
    </>
  );
}

/** Other terms of a lease: a later end, more runs. */
export function Extend({ lease }: { lease: Lease }) {
  const t = useTranslations();
  const client = useQueryClient();
  const toast = useToast();
  const [open, setOpen] = useState(false);
  const before = termsOf(lease);
  async function change(_agent: string, terms: Terms) {
    await leases.change(lease.id, bodyOf(terms, before));
    setOpen(false);
    toast(t("editor.saved"));
    await client.invalidateQueries();
  }
  return (
    <>
      <ScopedButton needs="write" onClick={() => setOpen(true)}>
        {t("agents.extend")}
      </ScopedButton>
      {open ? (
        <Dialog title={t("agents.leaseOf", { name: lease.agent })} onClose={() => setOpen(false)}>
          <TermsForm terms={before} label={t("app.save")} onSave={change} onClose={() => setOpen(false)} />
        </Dialog>
      ) : null}
    </>
  );
}

function TermsForm(props: {
  terms: Terms;
  isNew?: boolean;
  label: string;
  onSave: (agent: string, terms: Terms) => Promise<void>;
  onClose: () => void;
}) {
  const t = useTranslations("agents");
  const [agent, setAgent] = useState("");
  const [terms, setTerms] = useState(props.terms);
  const [error, setError] = useState<unknown>(null);
  const set = (change: Partial<Terms>) => setTerms((now) => ({ ...now, ...change }));
  function submit(event: FormEvent) {
    event.preventDefault();
    setError(null);
    props.onSave(agent.trim(), terms).catch(setError);
  }
  return (
    <form onSubmit={submit}>
      {props.isNew ? (
        <label className="field">
          <span>{t("agent")}</span>
          <input autoFocus required maxLength={200} value={agent} onChange={(event) => setAgent(event.target.value)} />
        </label>
      ) : null}
      <label className="field">
        <span>{t("purpose")}</span>
        <input value={terms.purpose} onChange={(event) => set({ purpose: event.target.value })} />
      </label>
      <div className="fields">
        <label className="field">
          <span>{t("ends", { zone: OWN_ZONE })}</span>
          <input
            required
            type="datetime-local"
            value={terms.expires}
            onChange={(event) => set({ expires: event.target.value })}
          />
        </label>
        {NUMBERS.map((name) => (
          <label key={name} className="field">
            <span>{t(LABELS[name])}</span>
            <input
              required
              type="number"
              min={LEAST[name]}
              value={terms[name]}
              onChange={(event) => set({ [name]: event.target.value })}
            />
          </label>
        ))}
        <label className="field">
          <span>{t("workflowIds")}</span>
          <input
            inputMode="numeric"
            pattern="[0-9, ]*"
            value={terms.workflows}
            onChange={(event) => set({ workflows: event.target.value })}
          />
        </label>
        <label className="field">
          <span>{t("reviewTerm")}</span>
          <select value={terms.review} onChange={(event) => set({ review: event.target.value })}>
            {REVIEWS.map((one) => (
              <option key={one} value={one}>
                {t(`review_${one}`)}
              </option>
            ))}
          </select>
        </label>
        <label className="field">
          <span>{t("atEnd")}</span>
          <select value={terms.at_end} onChange={(event) => set({ at_end: event.target.value })}>
            {ENDS.map((one) => (
              <option key={one} value={one}>
                {t(`end_${one}`)}
              </option>
            ))}
          </select>
        </label>
      </div>
      {error ? <Problem error={error} /> : null}
      <DialogFoot label={props.label} onClose={props.onClose} />
    </form>
  );
}

/** Schedules leave their lease and its bounds: all of them, or those that are chosen. */
export function Adopt({ lease }: { lease: LeaseDetail }) {
  const t = useTranslations();
  const act = useAct();
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [note, setNote] = useState("");
  const names = useScheduleNames(open ? lease.schedule_ids : []);
  const chosen = lease.schedule_ids.filter((id) => !left.has(id));
  const toggle = (id: string) => {
    const next = new Set(left);
    if (!next.delete(id)) next.add(id);
    setLeft(next);
  };
  async function adopt() {
    const done = await act(() => leases.adopt(lease.id, left.size ? chosen : undefined, note), t("agents.adopted", { count: chosen.length }));
    if (done) setOpen(false);
    await client.invalidateQueries();
  }
  if (lease.schedule_ids.length === 0) return null;
  return (
    <>
      <ScopedButton needs="write" onClick={() => setOpen(true)}>
        {t("agents.adopt")}
      </ScopedButton>
      {open ? (
        <Dialog title={t("agents.adopt")} onClose={() => setOpen(false)}>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              void adopt();
            }}
          >
            <p>{t("agents.adoptText")}</p>
            <ul className="plain-list tight adopted">
              {lease.schedule_ids.map((id) => (
                <li key={id}>
                  <label className="row">
                    <input type="checkbox" checked={!left.has(id)} onChange={() => toggle(id)} />
                    <Name>{names[id] ?? id}</Name>
                  </label>
                </li>
              ))}
            </ul>
            <label className="field">
              <span>{t("app.note")}</span>
              <input value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
            </label>
            <DialogFoot
              label={t("agents.adoptThem", { count: chosen.length })}
              disabled={chosen.length === 0}
              onClose={() => setOpen(false)}
            />
          </form>
        </Dialog>
      ) : null}
    </>
  );
}
