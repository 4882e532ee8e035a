import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import type { Overview } from "../api/types";
import { useLive } from "../live/useLive";
import { Badge, Loaded, Name, Time } from "../ui/controls";

const WORKERS_MS = 10_000;

/** The workers, how they learn what is due, and whether schedules fire. Only admins see the workers one by one. */
export function Workers({ figures, isAdmin }: { figures: Overview; isAdmin: boolean }) {
  const t = useTranslations("overview");
  const { pulse, isLive } = useLive();
  const now = isLive && pulse ? pulse : figures;
  return (
    <section className="card stack">
      <h2>{t("workers")}</h2>
      <dl className="facts">
        <dt>{t("workers")}</dt>
        <dd className={now.workers ? "" : "tone-bad"}>{now.workers}</dd>
        <dt>{t("mode")}</dt>
        <dd className={now.mode === "bell" ? "" : "tone-warn"}>
          {now.mode === "bell" ? t("bell") : now.mode === "sweep" ? t("sweep") : now.mode}
        </dd>
        <dt>{t("switch")}</dt>
        <dd>
          <Badge word={now.schedules_enabled ? "on" : "off"} kind="status" /> · <Link to="/settings">{t("change")}</Link>
        </dd>
      </dl>
      {isAdmin ? <WorkerTable /> : null}
    </section>
  );
}

function WorkerTable() {
  const t = useTranslations("overview");
  const query = useQuery({ queryKey: ["workers"], queryFn: fleet.workers, refetchInterval: WORKERS_MS, retry: false });
  return (
    <Loaded query={query}>
      {(page) =>
        page.items.length ? (
          <div className="scroll">
            <table className="plain">
              <thead>
                <tr>
                  <th scope="col">{t("worker")}</th>
                  <th scope="col">{t("running")}</th>
                  <th scope="col">{t("since")}</th>
                </tr>
              </thead>
              <tbody>
                {page.items.map((worker) => (
                  <tr key={worker.id}>
                    <td>
                      <Badge word={worker.is_live ? "live" : "gone"} kind="status" /> <Name>{worker.name}</Name>
                    </td>
                    <td>{worker.running}</td>
                    <td className="small">
                      <Time at={worker.started_at} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ) : null
      }
    </Loaded>
  );
}
