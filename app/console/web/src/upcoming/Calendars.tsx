/** The calendars that schedules refer to. */

import { useQuery } from "@tanstack/react-query";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import { Loaded, Name } from "../ui/controls";

export default function Calendars() {
  const t = useTranslations("calendars");
  const query = useQuery({ queryKey: ["calendars"], queryFn: fleet.calendars, retry: false });
  return (
    <div className="page">
      <div>
        <h1>{t("title")}</h1>
        <p className="soft">{t("text")}</p>
      </div>
      <Loaded query={query}>
        {(page) =>
          page.items.length ? (
            <div className="card">
              <table className="plain">
                <tbody>
                  {page.items.map((calendar) => (
                    <tr key={calendar.name}>
                      <td>
                        <Name>{calendar.name}</Name>
                      </td>
                      <td>{calendar.timezone}</td>
                      <td>{calendar.holidays ?? ""}</td>
                      <td className="mono small">{(calendar.dates ?? []).join(", ")}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <div className="card empty">{t("empty")}</div>
          )
        }
      </Loaded>
    </div>
  );
}
