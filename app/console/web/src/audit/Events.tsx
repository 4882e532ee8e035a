/** Events of the audit log: of all objects, or of one. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import type { Query } from "../api/http";
import type { AuditEvent } from "../api/types";
import { Loaded, Name, Time } from "../ui/controls";
import { changeLines } from "./changes";

const PAGE_SIZE = 50;

/** A table of the events that match, and a button for older ones. */
export function Events({ filter, zone, withObject }: { filter: Query; zone?: string; withObject?: boolean }) {
  const t = useTranslations();
  const query = useInfiniteQuery({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam }) => fleet.audit({ ...filter, limit: PAGE_SIZE, cursor: pageParam }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    retry: false,
  });
  const events = query.data?.pages.flatMap((page) => page.items) ?? [];
  const columns = ["at", "actor", "via", "action", ...(withObject ? (["object"] as const) : []), "changes"] as const;
  return (
    <Loaded query={query}>
      {() =>
        events.length ? (
          <div className="stack">
            <div className="scroll">
              <table className="plain events">
                <thead>
                  <tr>
                    {columns.map((name) => (
                      <th key={name} scope="col" className={`event-${name}`}>
                        {t(`audit.${name}`)}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {events.map((event, index) => (
                    <Row key={index} event={event} zone={zone} withObject={withObject} />
                  ))}
                </tbody>
              </table>
            </div>
            {query.hasNextPage ? (
              <div>
                <button type="button" onClick={() => void query.fetchNextPage()}>
                  {t("app.more")}
                </button>
              </div>
            ) : null}
          </div>
        ) : (
          <div className="empty">{t("audit.empty")}</div>
        )
      }
    </Loaded>
  );
}

function Row({ event, zone, withObject }: { event: AuditEvent; zone?: string; withObject?: boolean }) {
  const t = useTranslations("audit");
  return (
    <tr>
      <td className="nowrap">
        <Time at={event.at} zone={zone} />
      </td>
      <td>
        <Name>{event.actor ?? "–"}</Name>
        {event.on_behalf_of && !event.actor?.endsWith(` for ${event.on_behalf_of}`) ? (
          <div className="soft small">
            {t("for")} <Name>{event.on_behalf_of}</Name>
          </div>
        ) : null}
      </td>
      <td title={[event.address, event.request_id].filter(Boolean).join(" · ")}>
        <span className="chip">{event.via}</span>
      </td>
      <td>{event.action.replaceAll("_", " ")}</td>
      {withObject ? (
        <td>
          <div className="soft small">{event.object_type}</div>
          <ObjectLink event={event} />
        </td>
      ) : null}
      <td>
        <ChangeList changes={event.changes} />
        {event.note ? (
          <div>
            <q>
              <Name>{event.note}</Name>
            </q>
          </div>
        ) : null}
      </td>
    </tr>
  );
}

const PLACES: Record<string, "/schedules/$id" | "/workflows/$id" | "/runs/$id"> = {
  schedule: "/schedules/$id",
  workflow: "/workflows/$id",
  execution: "/runs/$id",
};

function ObjectLink({ event }: { event: AuditEvent }) {
  const text = event.object_name || event.object_id || "";
  const name = (
    <span className="clamped" title={text}>
      <Name>{text}</Name>
    </span>
  );
  const place = PLACES[event.object_type];
  const isGone = event.action.endsWith("_deleted");
  if (!place || !event.object_id || isGone) return name;
  return (
    <Link to={place} params={{ id: event.object_id }}>
      {name}
    </Link>
  );
}

/** What changed, a line for each field: before and after. */
export function ChangeList({ changes }: { changes: Record<string, unknown> | null }) {
  return (
    <>
      {changeLines(changes).map(({ field, before, after }) => (
        <div key={field} className="small change">
          <code>{field}</code>{" "}
          {before === undefined ? null : (
            <>
              <del>
                <bdi>{before}</bdi>
              </del>{" "}
              →{" "}
            </>
          )}
          <bdi>{after}</bdi>
        </div>
      ))}
    </>
  );
}
