/** All workflows. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { workflows } from "../api/client";
import { Loaded, Name, Time } from "../ui/controls";

export default function List() {
  const t = useTranslations();
  const query = useInfiniteQuery({
    queryKey: ["workflows"],
    queryFn: ({ pageParam }) => workflows.list({ limit: 100, cursor: pageParam }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="page">
      <div className="head">
        <h1>{t("workflows.title")}</h1>
        <Link to="/workflows/$id" params={{ id: "new" }} className="button primary">
          {t("workflows.create")}
        </Link>
      </div>
      <div className="card scroll">
        <Loaded query={query}>
          {() =>
            items.length ? (
              <table className="plain">
                <thead>
                  <tr>
                    <th scope="col">{t("workflows.name")}</th>
                    <th scope="col">{t("workflows.steps")}</th>
                    <th scope="col">{t("workflows.active")}</th>
                    <th scope="col">{t("workflows.changed")}</th>
                  </tr>
                </thead>
                <tbody>
                  {items.map((workflow) => (
                    <tr key={workflow.id}>
                      <td>
                        <Link to="/workflows/$id" params={{ id: String(workflow.id) }}>
                          <Name>{workflow.name}</Name>
                        </Link>
                      </td>
                      <td className="small mono">{workflow.nodes.map((node) => node.type).join(" → ")}</td>
                      <td>{t(workflow.active ? "workflows.active" : "workflows.inactive")}</td>
                      <td>
                        <Time at={workflow.updated_at} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            ) : (
              <div className="empty">{t("workflows.empty")}</div>
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
