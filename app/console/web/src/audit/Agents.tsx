/** The leases of agents: what waits for a review first, then every lease with what is left of it. */

import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { useTranslations } from "use-intl";
import { leases, schedules } from "../api/client";
import type { Lease, LeaseDetail, Schedule } from "../api/types";
import { useScheduleNames } from "../runs/useScheduleNames";
import { Badge, Dialog, DialogFoot, Loaded, Name, ScopedButton, Sentence, Time, useAct, useToast } from "../ui/controls";
import { Adopt, Extend, Grant } from "./LeaseForms";
import { byLease, EDITABLE, isSame } from "./review";
import "./agents.css";

const REFRESH_MS = 10_000;
const AWAITING = {
  status_reason: "awaiting_review",
  fields: ["id", "spec_description", "workflow_name", "lease_id", "status", ...EDITABLE].join(","),
  limit: 200,
};

export default function Agents() {
  const t = useTranslations("agents");
  const app = useTranslations("app");
  const waiting = useQuery({
    queryKey: ["awaiting-review"],
    queryFn: () => schedules.list(AWAITING),
    refetchInterval: REFRESH_MS,
    retry: false,
  });
  const query = useInfiniteQuery({
    queryKey: ["leases"],
    queryFn: ({ pageParam }) => leases.list({ limit: 50, cursor: pageParam }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    retry: false,
  });
  const all = query.data?.pages.flatMap((page) => page.items) ?? [];
  const queue = byLease(waiting.data?.items ?? []);
  return (
    <div className="page">
      <div className="head">
        <div>
          <h1>{t("title")}</h1>
          <p className="soft">{t("text")}</p>
        </div>
        <Grant />
      </div>
      {queue.length ? (
        <section className="stack" aria-label={t("review")}>
          <h2>{t("review")}</h2>
          {queue.map(({ leaseId, items }) => (
            <ReviewCard key={leaseId} leaseId={leaseId} waiting={items} />
          ))}
        </section>
      ) : null}
      <section className="stack" aria-label={t("leases")}>
        <h2>{t("leases")}</h2>
        <Loaded query={query}>
          {() =>
            all.length ? (
              all.map((lease) => <LeaseCard key={lease.id} lease={lease} />)
            ) : (
              <div className="card empty">{t("empty")}</div>
            )
          }
        </Loaded>
        {query.hasNextPage ? (
          <div className="actions">
            <button type="button" onClick={() => void query.fetchNextPage()}>
              {app("more")}
            </button>
          </div>
        ) : null}
      </section>
    </div>
  );
}

function useLease(id: number, enabled = true) {
  return useQuery({ queryKey: ["lease", id], queryFn: () => leases.read(id), enabled, retry: false });
}

/** What an agent has made and nobody has looked at: the lease, the schedules, and the decision. */
function ReviewCard({ leaseId, waiting }: { leaseId: number; waiting: Schedule[] }) {
  const t = useTranslations("agents");
  const query = useLease(leaseId);
  return (
    <Loaded query={query}>
      {(lease) => (
        <section className="card stack review" aria-label={t("reviewOf", { name: lease.agent })}>
          <div className="head">
            <div className="tight">
              <h3>
                <Name>{t("made", { name: lease.agent, count: waiting.length })}</Name>
              </h3>
              <p className="soft">
                <Name>{lease.purpose}</Name>
              </p>
            </div>
            <div className="actions">
              {lease.status === "active" ? (
                <>
                  <Approve lease={lease} waiting={waiting} />
                  <Revoke lease={lease} />
                </>
              ) : (
                <>
                  <Badge word={lease.status} kind="status" />
                  <Adopt lease={lease} />
                </>
              )}
            </div>
          </div>
          {lease.status === "active" ? null : <p className="note">{t("leaseEnded")}</p>}
          <WaitingTable items={waiting} />
          <Terms lease={lease} />
        </section>
      )}
    </Loaded>
  );
}

function WaitingTable({ items }: { items: Schedule[] }) {
  const t = useTranslations();
  return (
    <div className="scroll">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">{t("list.name")}</th>
            <th scope="col">{t("list.spec")}</th>
            <th scope="col">{t("agents.repeats")}</th>
            <th scope="col">{t("schedule.workflow")}</th>
            <th scope="col">{t("runs.status")}</th>
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.id}>
              <td>
                <Link to="/schedules/$id" params={{ id: item.id }}>
                  <Name>{item.name}</Name>
                </Link>
              </td>
              <td>
                <Sentence zone={item.timezone}>{item.spec_description}</Sentence> <span className="soft">({item.timezone})</span>
              </td>
              <td>{item.total_repeats || 1}</td>
              <td>
                <Link to="/workflows/$id" params={{ id: String(item.workflow_id) }}>
                  <Name>{item.workflow_name ?? String(item.workflow_id)}</Name>
                </Link>
              </td>
              <td>
                <Badge word={item.status} kind="status" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The approval of the schedules that are shown, as they are shown: what came or changed later is not approved. */
function Approve({ lease, waiting }: { lease: LeaseDetail; waiting: Schedule[] }) {
  const t = useTranslations("agents");
  const act = useAct();
  const toast = useToast();
  const client = useQueryClient();
  async function approve() {
    const latest = await act(() => schedules.list(AWAITING));
    if (!latest) return;
    const now = byLease(latest.items).find(({ leaseId }) => leaseId === lease.id)?.items ?? [];
    if (isSame(now, waiting)) await act(() => leases.approve(lease.id, waiting.map(({ id }) => id)), t("approved"));
    else toast(t("lookAgain"));
    await client.invalidateQueries();
  }
  return (
    <ScopedButton needs="write" className="primary" onClick={() => void approve()}>
      {t("approve", { count: waiting.length })}
    </ScopedButton>
  );
}

function Revoke({ lease }: { lease: Lease }) {
  const t = useTranslations();
  const act = useAct();
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const [note, setNote] = useState("");
  async function revoke() {
    const done = await act(() => leases.revoke(lease.id, note), t("agents.revoked"));
    if (done) setOpen(false);
    await client.invalidateQueries();
  }
  return (
    <>
      <ScopedButton needs="write" className="danger" onClick={() => setOpen(true)}>
        {t("agents.revoke")}
      </ScopedButton>
      {open ? (
        <Dialog title={t("agents.revokeTitle", { name: lease.agent })} onClose={() => setOpen(false)}>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              void revoke();
            }}
          >
            <p>{t("agents.revokeText")}</p>
            <label className="field">
              <span>{t("app.note")}</span>
              <input value={note} maxLength={500} onChange={(event) => setNote(event.target.value)} />
            </label>
            <DialogFoot label={t("agents.revoke")} tone="danger" onClose={() => setOpen(false)} />
          </form>
        </Dialog>
      ) : null}
    </>
  );
}

/** A lease in one row; its terms and what is left of it are asked for when it is opened. */
function LeaseCard({ lease }: { lease: Lease }) {
  const t = useTranslations("agents");
  const [open, setOpen] = useState(false);
  const query = useLease(lease.id, open);
  return (
    <section className="card stack" aria-label={t("leaseOf", { name: lease.agent })}>
      <div className="head">
        <div className="tight">
          <div className="row">
            <h3>
              <Name>{lease.agent}</Name>
            </h3>
            <Badge word={lease.status} kind="status" />
            <span className="soft small">
              {t("until")} <Time at={lease.expires_at} relative />
            </span>
          </div>
          {lease.purpose ? (
            <p className="soft">
              <Name>{lease.purpose}</Name>
            </p>
          ) : null}
        </div>
        {lease.status === "revoked" ? null : (
          <div className="actions">
            <Extend lease={lease} />
            <Revoke lease={lease} />
          </div>
        )}
      </div>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>{t("terms")}</summary>
        {open ? (
          <Loaded query={query}>
            {(found) => (
              <div className="stack terms">
                <Terms lease={found} />
                <Made ids={found.schedule_ids} />
                <div className="actions">
                  <Adopt lease={found} />
                </div>
              </div>
            )}
          </Loaded>
        ) : null}
      </details>
    </section>
  );
}

function Terms({ lease }: { lease: LeaseDetail }) {
  const t = useTranslations("agents");
  const bounds: [string, number, number][] = [
    [t("schedules"), lease.used.schedules, lease.max_schedules],
    [t("runs"), lease.used.runs, lease.max_runs],
    [t("writes"), lease.used.writes, lease.max_writes],
  ];
  const facts: [string, string][] = [
    [t("owner"), lease.owner],
    [t("grantedBy"), lease.granted_by],
    [t("interval"), `${lease.min_interval_seconds} s`],
    [t("retries"), String(lease.max_retries)],
    [t("workflows"), lease.workflows.length ? lease.workflows.join(", ") : t("allWorkflows")],
    [t("reviewTerm"), t.has(`review_${lease.review}` as never) ? t(`review_${lease.review}` as never) : lease.review],
    [t("atEnd"), t.has(`end_${lease.at_end}` as never) ? t(`end_${lease.at_end}` as never) : lease.at_end],
  ];
  return (
    <div className="stack">
      <div className="gauges">
        {bounds.map(([name, used, most]) => (
          <Gauge key={name} name={name} used={used} most={most} />
        ))}
      </div>
      <dl className="facts">
        <dt>{t("until")}</dt>
        <dd>
          <Time at={lease.expires_at} relative />
        </dd>
        {facts.map(([name, value]) => (
          <div key={name} className="fact">
            <dt>{name}</dt>
            <dd>
              <Name>{value}</Name>
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

/** How much of a bound is used; a bound of 0 changes is none. */
function Gauge({ name, used, most }: { name: string; used: number; most: number }) {
  const t = useTranslations("agents");
  if (most === 0) return null;
  return (
    <label className="gauge">
      <span>
        <strong>{name}</strong> {t("left", { left: Math.max(0, most - used), most })}
      </span>
      <meter min={0} max={most} high={most * 0.8} optimum={0} value={used} />
    </label>
  );
}

const SHOWN = 50;

function Made({ ids }: { ids: string[] }) {
  const t = useTranslations("agents");
  const names = useScheduleNames(ids.slice(0, SHOWN));
  if (ids.length === 0) return <p className="soft">{t("nothingMade")}</p>;
  return (
    <div className="tight">
      <strong>{t("madeWith", { count: ids.length })}</strong>
      <ul className="row plain-list">
        {ids.slice(0, SHOWN).map((id) => (
          <li key={id}>
            <Link to="/schedules/$id" params={{ id }}>
              <Name>{names[id] ?? id.slice(0, 8)}</Name>
            </Link>
          </li>
        ))}
      </ul>
    </div>
  );
}
