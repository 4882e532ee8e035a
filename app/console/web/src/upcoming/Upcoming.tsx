/** What is due next, day by day or as a week. */

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import { useOverview } from "../shell/Shell";
import { Loaded, Name, Time, useZone } from "../ui/controls";
import { instantText } from "../ui/time";
import { daysOf } from "./agenda";
import { Completeness, Week } from "./Week";

const route = getRouteApi("/upcoming");
const HOURS = [1, 6, 24, 72, 168];
const HOUR_MS = 3_600_000;
const MOST = 500;

export default function Upcoming() {
  const t = useTranslations("upcoming");
  const { hours = "24", view, at, to } = route.useSearch();
  const navigate = useNavigate();
  const isWeek = view === "week";
  return (
    <div className="page">
      <div className="head">
        <div>
          <h1>{t("title")}</h1>
          <p className="soft">{t("text")}</p>
        </div>
        <div className="actions">
          <button
            type="button"
            aria-pressed={isWeek}
            onClick={() => void navigate({ to: "/upcoming", search: { view: "week" } })}
          >
            {t("week")}
          </button>
          {HOURS.map((count) => (
            <button
              key={count}
              type="button"
              aria-pressed={!isWeek && String(count) === hours}
              onClick={() => void navigate({ to: "/upcoming", search: { hours: String(count) } })}
            >
              {t("hours", { count })}
            </button>
          ))}
        </div>
      </div>
      {isWeek ? (
        <Week
          span={at && to ? { from: at, to } : undefined}
          onSpan={(span) => void navigate({ to: "/upcoming", search: { view, at: span?.from, to: span?.to } })}
        />
      ) : (
        <Agenda hours={hours} />
      )}
      <p>
        <a href="/api/v1/upcoming.ics" download>
          {t("calendar")}
        </a>
      </p>
    </div>
  );
}

function Agenda({ hours }: { hours: string }) {
  const t = useTranslations("upcoming");
  const zone = useZone();
  const isOff = useOverview().data?.schedules_enabled === false;
  const query = useQuery({
    queryKey: ["upcoming", hours],
    queryFn: () => {
      const now = Date.now();
      const until = new Date(now + Number(hours) * HOUR_MS);
      return fleet.upcoming({ from: new Date(now).toISOString(), to: until.toISOString(), limit: MOST });
    },
    refetchInterval: 30_000,
    retry: false,
  });
  return (
    <Loaded query={query}>
      {(list) => (
        <>
          {isOff ? <p className="note warn">{t("off")}</p> : null}
          {daysOf(list.items, zone).map((day) => (
            <section key={day.day} className="card stack">
              <h2>
                {day.day} <span className="soft">{zone}</span>
              </h2>
              <table className="plain agenda">
                <tbody>
                  {day.rows.map((row) => (
                    <tr key={row.clock + row.item.schedule_id}>
                      <td className="nowrap">
                        <time dateTime={row.at} title={instantText(row.at, "UTC")}>
                          {row.clock}
                        </time>
                      </td>
                      <td>
                        <Link to="/schedules/$id" params={{ id: row.item.schedule_id }}>
                          <Name>{row.item.schedule_name}</Name>
                        </Link>
                        {row.items.length > 1 ? <span className="soft"> × {row.items.length}</span> : null}
                      </td>
                      <td className="soft small">
                        <Name>{row.item.workflow_name}</Name>
                      </td>
                      <td className="soft small">
                        {row.items.length === 1 && row.item.slot !== row.at ? <Time at={row.item.slot} /> : null}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          ))}
          <Completeness list={list} most={MOST} />
        </>
      )}
    </Loaded>
  );
}
