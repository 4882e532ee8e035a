/** Settings: the switch for all schedules, and how this page looks. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useTranslations } from "use-intl";
import { settings } from "../api/client";
import { Choosers } from "../shell/Shell";
import { Badge, Loaded, ScopedButton, useAct } from "../ui/controls";

export default function Settings() {
  const t = useTranslations();
  const act = useAct();
  const client = useQueryClient();
  const query = useQuery({ queryKey: ["settings"], queryFn: settings.read, retry: false });
  const change = (body: Parameters<typeof settings.change>[0]) =>
    void act(() => settings.change(body)).then(() => client.invalidateQueries());
  return (
    <div className="page">
      <h1>{t("settings.title")}</h1>
      <section className="card stack">
        <h2>{t("settings.enabled")}</h2>
        <p className="soft">{t("settings.enabledText")}</p>
        <Loaded query={query}>
          {(found) => (
            <>
              <div className="row">
                <Badge word={found.schedules_enabled ? "active" : "dead"} kind="status" />
                <span>{t(found.schedules_enabled ? "settings.isOn" : "settings.isOff")}</span>
                <ScopedButton
                  needs="admin"
                  className={found.schedules_enabled ? "danger" : "primary"}
                  onClick={() => change({ schedules_enabled: !found.schedules_enabled })}
                >
                  {t(found.schedules_enabled ? "settings.off" : "settings.on")}
                </ScopedButton>
              </div>
              <label className="row">
                <input
                  type="checkbox"
                  checked={found.ping_sitemap_on_run}
                  onChange={(event) => change({ ping_sitemap_on_run: event.target.checked })}
                />
                {t("settings.sitemap")}
              </label>
            </>
          )}
        </Loaded>
      </section>
      <section className="card stack settings-appearance">
        <h2>{t("settings.appearance")}</h2>
        <Choosers />
      </section>
      <p>
        <Link to="/sessions">{t("sessions.title")}</Link>
      </p>
    </div>
  );
}
