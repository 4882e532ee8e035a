/** The named limits of runs: what each allows, what is under way, and who waits. */

import { keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { executions, limits, schedules } from "../api/client";
import type { Execution, Limit, Page } from "../api/types";
import { useSession } from "../sessionContext";
import { Dialog, DialogFoot, Loaded, Loading, Name, Problem, RemoveDialog, ScopedButton, useAct } from "../ui/controls";
import { isAddressable, isAmbiguous, runsWaitingFor } from "./limitOwners";
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
              <Card
                key={`${limit.user_profile_id} ${limit.name}`}
                limit={limit}
                all={all}
                onEdit={() => setEdited({ limit })}
              />
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

function Card({ limit, all, onEdit }: { limit: Limit; all: Limit[]; onEdit: () => void }) {
  const t = useTranslations();
  const isMine = isAddressable(limit, useSession().user.id);
  const [isRemoving, setRemoving] = useState(false);
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
          {isMine ? null : <span className="chip">{t("limits.ofUser", { id: limit.user_profile_id })}</span>}
        </div>
        {isMine ? (
          <div className="actions">
            <ScopedButton needs="write" onClick={onEdit}>
              {t("limits.edit")}
            </ScopedButton>
            <ScopedButton needs="write" className="danger" onClick={() => setRemoving(true)}>
              {t("schedule.remove")}
            </ScopedButton>
          </div>
        ) : null}
      </div>
      {isRemoving ? (
        <RemoveDialog
          text={t("limits.removeText", { name: limit.name })}
          onClose={() => setRemoving(false)}
          onRemove={() => void remove()}
        />
      ) : null}
      <dl className="facts">
        <dt>{t("limits.bounds")}</dt>
        <dd>{bounds.join(" · ")}</dd>
        <dt>{t("limits.held")}</dt>
        <dd>
          {/* The bound holds for each key: all keys together can hold more. */}
          {limit.max_concurrent === null || limit.held > limit.max_concurrent ? (
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
      {limit.waiting ? <Waiting limit={limit} all={all} /> : null}
    </section>
  );
}

const MOST_PENDING = 200;

/** The runs that wait for a permit of a limit, the next one first. */
function Waiting({ limit, all }: { limit: Limit; all: Limit[] }) {
  const t = useTranslations("limits");
  const query = useQuery({
    queryKey: ["pending-runs"],
    queryFn: () => executions.list({ status: "pending", limit: MOST_PENDING }),
    refetchInterval: REFRESH_MS,
  });
  return (
    <details open>
      <summary>{t("whoWaits", { count: limit.waiting })}</summary>
      <Loaded query={query}>{(page) => <WaitingRuns limit={limit} all={all} page={page} />}</Loaded>
    </details>
  );
}

function WaitingRuns({ limit, all, page }: { limit: Limit; all: Limit[]; page: Page<Execution> }) {
  const t = useTranslations("limits");
  const owners = useScheduleOwners(page.items, isAmbiguous(limit, all));
  if (!owners) return <Loading />;
  const runs = runsWaitingFor(limit, all, page.items, (run) => owners.get(run.scheduled_job_id));
  return (
    <>
      {runs.length ? <RunTable runs={runs} withSchedule /> : <p className="soft">{t("notShown")}</p>}
      {page.next_cursor ? <p className="soft">{t("newestOnly", { count: MOST_PENDING })}</p> : null}
    </>
  );
}

/** The owners of the schedules of runs, asked for only if they matter; null while they are loaded. */
function useScheduleOwners(runs: Execution[], enabled: boolean): Map<string | null, number> | null {
  const ids = [...new Set(runs.map((run) => run.scheduled_job_id))].filter((id) => id !== null).sort();
  const isAsked = enabled && ids.length > 0;
  const query = useQuery({
    queryKey: ["schedule-owners", ids],
    queryFn: () => schedules.list({ ids: ids.join(","), fields: "id,user_profile_id", limit: MOST_PENDING }),
    enabled: isAsked,
    staleTime: Infinity,
    retry: false,
    placeholderData: keepPreviousData,
  });
  if (isAsked && query.isPending) return null;
  return new Map(query.data?.items.map((row) => [row.id, row.user_profile_id]));
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
