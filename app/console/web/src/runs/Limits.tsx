/** The named limits of runs: what each allows, what is under way, and who waits. */

import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { executions, limits } from "../api/client";
import type { Limit } from "../api/types";
import { Dialog, DialogFoot, Loaded, Name, Problem, ScopedButton, useAct } from "../ui/controls";
import { RunTable } from "./RunTable";

const REFRESH_MS = 5000;

export default function Limits() {
  const t = useTranslations();
  const client = useQueryClient();
  const [edited, setEdited] = useState<{ limit?: Limit } | null>(null);
  const query = useInfiniteQuery({
    queryKey: ["limits"],
    queryFn: ({ pageParam }) => limits.list({ limit: 50, cursor: pageParam }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: REFRESH_MS,
    retry: false,
  });
  const all = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="page">
      <div className="head">
        <div>
          <h1>{t("limits.title")}</h1>
          <p className="soft">{t("limits.text")}</p>
        </div>
        <ScopedButton needs="write" className="primary" onClick={() => setEdited({})}>
          {t("limits.create")}
        </ScopedButton>
      </div>
      {edited ? (
        <LimitForm
          limit={edited.limit}
          onClose={() => setEdited(null)}
          onSaved={() => void client.invalidateQueries({ queryKey: ["limits"] }).then(() => setEdited(null))}
        />
      ) : null}
      <Loaded query={query}>
        {() =>
          all.length ? (
            all.map((limit) => (
              <Card key={`${limit.user_profile_id} ${limit.name}`} limit={limit} onEdit={() => setEdited({ limit })} />
            ))
          ) : (
            <div className="card empty">{t("limits.empty")}</div>
          )
        }
      </Loaded>
      {query.hasNextPage ? (
        <div className="actions">
          <button type="button" onClick={() => void query.fetchNextPage()}>
            {t("app.more")}
          </button>
        </div>
      ) : null}
    </div>
  );
}

function Card({ limit, onEdit }: { limit: Limit; onEdit: () => void }) {
  const t = useTranslations();
  const act = useAct();
  const client = useQueryClient();
  const remove = () =>
    act(() => limits.remove(limit), t("schedule.removed")).then(() => client.invalidateQueries({ queryKey: ["limits"] }));
  const bounds = [
    limit.max_concurrent === null ? null : t("limits.atOnce", { count: limit.max_concurrent }),
    limit.rate,
  ].filter((one) => one !== null);
  return (
    <section className="card stack" aria-label={limit.name}>
      <div className="head">
        <div className="row">
          <h2>
            <Name>{limit.name}</Name>
          </h2>
          {limit.public ? <span className="chip">{t("limits.public")}</span> : null}
        </div>
        <div className="actions">
          <ScopedButton needs="write" onClick={onEdit}>
            {t("limits.edit")}
          </ScopedButton>
          <ScopedButton needs="write" className="danger" onClick={() => void remove()}>
            {t("schedule.remove")}
          </ScopedButton>
        </div>
      </div>
      <dl className="facts">
        <dt>{t("limits.bounds")}</dt>
        <dd>{bounds.join(" · ")}</dd>
        <dt>{t("limits.held")}</dt>
        <dd>
          {limit.max_concurrent === null ? (
            limit.held
          ) : (
            <label className="row">
              {t("limits.of", { held: limit.held, most: limit.max_concurrent })}
              <meter min={0} max={limit.max_concurrent} value={limit.held} />
            </label>
          )}
        </dd>
        <dt>{t("limits.waiting")}</dt>
        <dd className={limit.waiting ? "tone-warn" : ""}>{limit.waiting}</dd>
      </dl>
      {limit.waiting ? <Waiting limit={limit} /> : null}
    </section>
  );
}

const MOST_PENDING = 200;

/** The runs that wait for a permit of a limit, the next one first. */
function Waiting({ limit }: { limit: Limit }) {
  const t = useTranslations("limits");
  const query = useQuery({
    queryKey: ["pending-runs"],
    queryFn: () => executions.list({ status: "pending", limit: MOST_PENDING }),
    refetchInterval: REFRESH_MS,
  });
  return (
    <details open>
      <summary>{t("whoWaits", { count: limit.waiting })}</summary>
      <Loaded query={query}>
        {(page) => {
          const waiting = page.items.filter((run) => run.waiting_for === `limit:${limit.name}`).toReversed();
          return waiting.length ? <RunTable runs={waiting} withSchedule /> : <p className="soft">{t("nobody")}</p>;
        }}
      </Loaded>
    </details>
  );
}

const numberOf = (text: string): number | null => (text.trim() ? Number(text) : null);

function LimitForm(props: { limit?: Limit; onClose: () => void; onSaved: () => void }) {
  const { limit } = props;
  const t = useTranslations();
  const [name, setName] = useState(limit?.name ?? "");
  const [concurrent, setConcurrent] = useState(String(limit?.max_concurrent ?? ""));
  const [rate, setRate] = useState(limit?.rate ?? "");
  const [burst, setBurst] = useState(String(limit?.burst ?? ""));
  const [isPublic, setPublic] = useState(limit?.public ?? false);
  const [error, setError] = useState<unknown>(null);
  async function submit(event: FormEvent) {
    event.preventDefault();
    const bounds = { max_concurrent: numberOf(concurrent), rate: rate.trim() || null, burst: numberOf(burst) };
    // Only admins say whether a limit is public: what is unchanged is not sent.
    const shared = isPublic === (limit?.public ?? false) ? {} : { public: isPublic };
    try {
      await (limit
        ? limits.change(limit, { ...bounds, ...shared })
        : limits.create({ name: name.trim(), ...bounds, ...shared }));
      props.onSaved();
    } catch (problem) {
      setError(problem);
    }
  }
  const number = (label: string, value: string, set: (value: string) => void) => (
    <label className="field">
      <span>{label}</span>
      <input type="number" min={1} value={value} onChange={(event) => set(event.target.value)} />
    </label>
  );
  return (
    <Dialog title={limit ? limit.name : t("limits.create")} onClose={props.onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {limit ? null : (
          <label className="field">
            <span>{t("limits.name")}</span>
            <input required value={name} onChange={(event) => setName(event.target.value)} />
          </label>
        )}
        {number(t("limits.concurrent"), concurrent, setConcurrent)}
        <label className="field">
          <span>{t("limits.rate")}</span>
          <input value={rate} onChange={(event) => setRate(event.target.value)} />
        </label>
        {number(t("limits.burst"), burst, setBurst)}
        <label className="row">
          <input type="checkbox" checked={isPublic} onChange={(event) => setPublic(event.target.checked)} />
          {t("limits.publicText")}
        </label>
        {error ? <Problem error={error} /> : null}
        <DialogFoot label={t("app.save")} onClose={props.onClose} />
      </form>
    </Dialog>
  );
}
