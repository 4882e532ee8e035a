/** The browsers that are logged in as this user. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslations } from "use-intl";
import { session } from "../api/client";
import { Loaded, Time, useAct } from "../ui/controls";

export default function Sessions() {
  const t = useTranslations("sessions");
  const act = useAct();
  const client = useQueryClient();
  const query = useQuery({ queryKey: ["sessions"], queryFn: session.list });
  return (
    <div className="page">
      <div>
        <h1>{t("title")}</h1>
        <p className="soft">{t("text")}</p>
      </div>
      <div className="card scroll">
        <Loaded query={query}>
          {(page) => (
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">{t("browser")}</th>
                  <th scope="col">{t("address")}</th>
                  <th scope="col">{t("began")}</th>
                  <th scope="col">{t("seen")}</th>
                  <th scope="col">{t("ends")}</th>
                  <th scope="col">
                    <span className="visually-hidden">{t("end")}</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {page.items.map((one) => (
                  <tr key={one.id}>
                    <td>
                      <bdi>{one.user_agent}</bdi>
                    </td>
                    <td>{one.address}</td>
                    <td>
                      <Time at={one.created_at} />
                    </td>
                    <td>
                      <Time at={one.seen_at} />
                    </td>
                    <td>
                      <Time at={one.expires_at} />
                    </td>
                    <td>
                      {one.is_current ? (
                        <span className="chip">{t("current")}</span>
                      ) : (
                        <button
                          type="button"
                          onClick={() =>
                            void act(() => session.end(one.id)).then(() => client.invalidateQueries({ queryKey: ["sessions"] }))
                          }
                        >
                          {t("end")}
                        </button>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Loaded>
      </div>
    </div>
  );
}
