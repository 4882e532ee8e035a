/** What is due next, day by day or as a week. */

import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import { Loaded, Name, Time, useZone } from "../ui/controls";
import { clockText, instantText } from "../ui/time";
import { daysOf } from "./agenda";
import { Week } from "./Week";

const route = getRouteApi("/upcoming");
const HOURS = [1, 6, 24, 72, 168];
const HOUR_MS = 3_600_000;

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
  const query = useQuery({
    queryKey: ["upcoming", hours],
    queryFn: () => {
      const now = Date.now();
      const until = new Date(now + Number(hours) * HOUR_MS);
      return fleet.upcoming({ from: new Date(now).toISOString(), to: until.toISOString(), limit: 500 });
    },
    refetchInterval: 30_000,
    retry: false,
  });
  return (
    <Loaded query={query}>
      {(page) =>
        page.items.length ? (
          daysOf(page.items, zone).map((day) => (
            <section key={day.day} className="card stack">
              <h2>
                {day.day} <span className="soft">{zone}</span>
              </h2>
              <table className="plain">
                <tbody>
                  {day.items.map((item, index) => (
                    <tr key={index}>
                      <td>
                        <time dateTime={item.at} title={instantText(item.at, "UTC")}>
                          {clockText(item.at, zone)}
                        </time>
                      </td>
                      <td>
                        <Link to="/schedules/$id" params={{ id: item.schedule_id }}>
                          <Name>{item.schedule_name}</Name>
                        </Link>
                      </td>
                      <td className="soft small">
                        {item.slot && item.slot !== item.at ? <Time at={item.slot} /> : null}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          ))
        ) : (
          <div className="card empty">{t("empty")}</div>
        )
      }
    </Loaded>
  );
}
