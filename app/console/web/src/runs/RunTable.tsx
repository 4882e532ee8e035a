import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import type { Execution } from "../api/types";
import { Badge, Name, Time } from "../ui/controls";
import { durationText } from "../ui/time";
import { useScheduleNames } from "./useScheduleNames";

/** Runs as a table; the status leads to the run. */
export function RunTable({ runs, zone, withSchedule }: { runs: Execution[]; zone?: string; withSchedule?: boolean }) {
  const t = useTranslations("runs");
  const names = useScheduleNames(withSchedule ? runs.map((run) => run.scheduled_job_id) : []);
  return (
    <div className="scroll">
      <table className="plain">
        <thead>
          <tr>
            <th scope="col">{t("status")}</th>
            <th scope="col">{t("slot")}</th>
            <th scope="col">{t("trigger")}</th>
            <th scope="col">{t("attempt")}</th>
            <th scope="col">{t("duration")}</th>
            {withSchedule ? <th scope="col">{t("schedule")}</th> : null}
            <th scope="col">{t("error")}</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td>
                <Link to="/runs/$id" params={{ id: run.id }}>
                  <Badge word={run.status} kind="status" />
                </Link>
                {run.waiting_for ? <div className="soft small">{t("waiting", { what: run.waiting_for })}</div> : null}
              </td>
              <td>
                <Time at={run.scheduled_for} zone={zone} />
              </td>
              <td>{run.trigger}</td>
              <td>{run.retry_attempt + 1}</td>
              <td>{durationText(run.duration_ms)}</td>
              {withSchedule ? (
                <td>
                  {run.scheduled_job_id ? (
                    <Link to="/schedules/$id" params={{ id: run.scheduled_job_id }}>
                      <Name>{names[run.scheduled_job_id] ?? run.scheduled_job_id.slice(0, 8)}</Name>
                    </Link>
                  ) : (
                    "–"
                  )}
                </td>
              ) : null}
              <td className="small">
                <Name>{run.error}</Name>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
