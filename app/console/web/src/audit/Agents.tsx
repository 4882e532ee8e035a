/** The leases of agents: those that wait for a review first. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useTranslations } from "use-intl";
import { fleet } from "../api/client";
import { Badge, Loaded, Name, ScopedButton, Time, useAct } from "../ui/controls";

export default function Agents() {
  const t = useTranslations("agents");
  const act = useAct();
  const client = useQueryClient();
  const query = useQuery({ queryKey: ["leases"], queryFn: fleet.leases, retry: false });
  const change = (work: () => Promise<unknown>) => void act(work).then(() => client.invalidateQueries({ queryKey: ["leases"] }));
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
                  {page.items.map((lease) => (
                    <tr key={lease.id}>
                      <td>
                        <Badge word={lease.status} kind="status" />
                      </td>
                      <td>
                        <Name>{lease.agent ?? String(lease.id)}</Name>
                        <div className="soft small">{lease.purpose}</div>
                      </td>
                      <td>
                        <Time at={lease.expires_at} />
                      </td>
                      <td className="actions">
                        <ScopedButton needs="write" onClick={() => change(() => fleet.approveLease(lease.id))}>
                          {t("approve")}
                        </ScopedButton>
                        <ScopedButton needs="write" className="danger" onClick={() => change(() => fleet.revokeLease(lease.id))}>
                          {t("revoke")}
                        </ScopedButton>
                      </td>
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
