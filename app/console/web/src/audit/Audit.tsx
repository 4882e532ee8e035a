/** The audit log: who did what to what, by which way. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import type { AuditEvent } from "../api/types";
import { Changes } from "../schedules/SchedulePage";
import { Loaded, Name, Time } from "../ui/controls";

const route = getRouteApi("/audit");

export default function Audit() {
  const t = useTranslations();
  const search = route.useSearch();
  const navigate = useNavigate();
  const query = useInfiniteQuery({
    queryKey: ["audit", search],
    queryFn: ({ pageParam }) => fleet.audit({ ...search, limit: 50, cursor: pageParam }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    retry: false,
  });
  const events = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="page">
      <h1>{t("audit.title")}</h1>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          const data = new FormData(event.currentTarget);
          const text = (name: string) => String(data.get(name) ?? "").trim() || undefined;
          void navigate({ to: "/audit", search: { ...search, actor: text("actor"), action: text("action") } });
        }}
      >
        <input name="actor" aria-label={t("audit.actor")} placeholder={t("audit.actor")} defaultValue={search.actor} />
        <input name="action" aria-label={t("audit.action")} placeholder={t("audit.action")} defaultValue={search.action} />
        <button type="submit">{t("app.search")}</button>
      </form>
      <div className="card scroll">
        <Loaded query={query}>
          {() =>
            events.length ? (
              <table className="plain">
                <thead>
                  <tr>
                    {(["at", "actor", "via", "action", "object", "changes"] as const).map((name) => (
                      <th key={name} scope="col">
                        {t(`audit.${name}`)}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {events.map((event, index) => (
                    <Row key={index} event={event} />
                  ))}
                </tbody>
              </table>
            ) : (
              <div className="empty">{t("audit.empty")}</div>
            )
          }
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

function Row({ event }: { event: AuditEvent }) {
  const name = event.object_name || event.object_id || "";
  return (
    <tr>
      <td>
        <Time at={event.at} />
      </td>
      <td>
        <Name>{[event.actor, event.on_behalf_of].filter(Boolean).join(" → ") || "–"}</Name>
      </td>
      <td>{event.via}</td>
      <td>{event.action}</td>
      <td>
        <span className="soft small">{event.object_type}</span>{" "}
        {event.object_type === "schedule" && event.object_id ? (
          <Link to="/schedules/$id" params={{ id: event.object_id }}>
            <Name>{name}</Name>
          </Link>
        ) : (
          <Name>{name}</Name>
        )}
      </td>
      <td>
        <Changes changes={event.changes} />
        {event.note ? <Name>{event.note}</Name> : null}
      </td>
    </tr>
  );
}
