/** The latest runs, filtered by status, schedule or workflow. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { executions } from "../api/client";
import { Badge, Loaded } from "../ui/controls";
import { RunTable } from "./RunTable";

const route = getRouteApi("/runs");
const STATUSES = ["pending", "running", "success", "failed", "timed_out", "lost", "cancelled", "skipped", "blocked"];
const REFRESH_MS = 5000;

export default function Runs() {
  const t = useTranslations();
  const search = route.useSearch();
  const navigate = useNavigate();
  const query = useInfiniteQuery({
    queryKey: ["runs", search],
    queryFn: ({ pageParam }) =>
      executions.list({
        status: search.status,
        scheduled_job_id: search.schedule,
        workflow_id: search.workflow,
        limit: 50,
        cursor: pageParam,
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: (one) => (one.state.data && one.state.data.pages.length > 1 ? false : REFRESH_MS),
  });
  const runs = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="page">
      <h1>{t("runs.title")}</h1>
      <div className="row">
        {STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            aria-pressed={search.status === status}
            onClick={() =>
              void navigate({
                to: "/runs",
                search: { ...search, status: search.status === status ? undefined : status },
              })
            }
          >
            <Badge word={status} kind="status" />
          </button>
        ))}
      </div>
      <div className="card">
        <Loaded query={query}>
          {() => (runs.length ? <RunTable runs={runs} withSchedule /> : <div className="empty">{t("runs.empty")}</div>)}
        </Loaded>
      </div>
      {query.hasNextPage ? (
        <button type="button" onClick={() => void query.fetchNextPage()}>
          {t("app.more")}
        </button>
      ) : null}
    </div>
  );
}
