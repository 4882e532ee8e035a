/** The breakers of workflows: open ones first, with their transitions. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { breakers } from "../api/client";
import type { Breaker } from "../api/types";
import { Badge, Loaded, Name, ScopedButton, Time, useAct } from "../ui/controls";

const ORDER = ["open", "half_open", "closed"];

export default function Breakers() {
  const t = useTranslations("breakers");
  const query = useQuery({ queryKey: ["breakers"], queryFn: breakers.list, refetchInterval: 5000 });
  return (
    <div className="page">
      <div>
        <h1>{t("title")}</h1>
        <p className="soft">{t("text")}</p>
      </div>
      <Loaded query={query}>
        {(page) =>
          page.items.length ? (
            [...page.items]
              .sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state))
              .map((breaker) => <Card key={breaker.workflow_id} breaker={breaker} />)
          ) : (
            <div className="card empty">{t("empty")}</div>
          )
        }
      </Loaded>
    </div>
  );
}

function Card({ breaker }: { breaker: Breaker }) {
  const t = useTranslations("breakers");
  const act = useAct();
  const client = useQueryClient();
  return (
    <section className="card stack" aria-label={breaker.workflow_name}>
      <div className="head">
        <div className="row">
          <h2>
            <Link to="/workflows/$id" params={{ id: String(breaker.workflow_id) }}>
              <Name>{breaker.workflow_name}</Name>
            </Link>
          </h2>
          <Badge word={breaker.state} kind="status" />
        </div>
        {breaker.state === "closed" ? null : (
          <ScopedButton
            needs="operate"
            onClick={() => void act(() => breakers.reset(breaker.workflow_id)).then(() => client.invalidateQueries())}
          >
            {t("reset")}
          </ScopedButton>
        )}
      </div>
      <dl className="facts">
        <dt>{t("failures")}</dt>
        <dd>
          {breaker.failure_count} · {t("threshold")} {breaker.breaker_threshold}
        </dd>
        <dt>{t("opened")}</dt>
        <dd>
          <Time at={breaker.opened_at} />
        </dd>
        <dt>{t("tries")}</dt>
        <dd>
          <Time at={breaker.half_opens_at} relative={Boolean(breaker.half_opens_at)} />
        </dd>
      </dl>
      <Transitions id={breaker.workflow_id} />
    </section>
  );
}

function Transitions({ id }: { id: number }) {
  const t = useTranslations("breakers");
  const query = useQuery({ queryKey: ["breaker", id], queryFn: () => breakers.read(id) });
  if (!query.data?.transitions.length) return null;
  return (
    <details>
      <summary>{t("transitions")}</summary>
      <table className="plain">
        <tbody>
          {query.data.transitions.map((one) => (
            <tr key={one.at + one.to_state}>
              <td>
                <Time at={one.at} />
              </td>
              <td>
                {one.from_state} → {one.to_state}
              </td>
              <td>{one.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
