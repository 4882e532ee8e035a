/** The calendars that schedules refer to, and the form that makes and changes them. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useTranslations } from "use-intl";
import { calendars } from "../api/client";
import type { Calendar } from "../api/types";
import { useSession } from "../sessionContext";
import { Dialog, DialogFoot, Loaded, Name, Problem, RemoveDialog, ScopedButton, useAct } from "../ui/controls";

const NEW = { name: "", timezone: "UTC", dates: [], holidays: null, public: false };
type Draft = Pick<Calendar, "name" | "timezone" | "dates" | "holidays" | "public">;

export default function Calendars() {
  const t = useTranslations();
  const act = useAct();
  const client = useQueryClient();
  const [edited, setEdited] = useState<{ draft: Draft; stored?: Calendar } | null>(null);
  const [removed, setRemoved] = useState<Calendar | null>(null);
  const session = useSession();
  const mayChange = ({ owner, team_id }: Calendar) =>
    session.role === "admin" || team_id !== null || owner === session.user.id;
  const query = useQuery({ queryKey: ["calendars"], queryFn: calendars.list, retry: false });
  const refresh = () => client.invalidateQueries({ queryKey: ["calendars"] });
  return (
    <div className="page">
      <div className="head">
        <div>
          <h1>{t("calendars.title")}</h1>
          <p className="soft">{t("calendars.text")}</p>
        </div>
        <ScopedButton needs="write" className="primary" onClick={() => setEdited({ draft: NEW })}>
          {t("calendars.create")}
        </ScopedButton>
      </div>
      {edited ? (
        <CalendarForm
          draft={edited.draft}
          stored={edited.stored}
          onClose={() => setEdited(null)}
          onSaved={() => void refresh().then(() => setEdited(null))}
        />
      ) : null}
      {removed ? (
        <RemoveDialog
          text={t("calendars.removeText", { name: removed.name })}
          onClose={() => setRemoved(null)}
          onRemove={() => void act(() => calendars.remove(removed), t("schedule.removed")).then(refresh)}
        />
      ) : null}
      <Loaded query={query}>
        {(page) =>
          page.items.length ? (
            <div className="card scroll">
              <table className="plain">
                <thead>
                  <tr>
                    {(["name", "timezone", "holidays", "dates"] as const).map((name) => (
                      <th key={name} scope="col">
                        {t(`calendars.${name}`)}
                      </th>
                    ))}
                    <th scope="col">
                      <span className="visually-hidden">{t("calendars.edit")}</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {page.items.map((calendar) => (
                    <tr key={`${calendar.owner} ${calendar.team_id} ${calendar.name}`}>
                      <td>
                        <Name>{calendar.name}</Name> {calendar.public ? <span className="chip">{t("calendars.public")}</span> : null}
                      </td>
                      <td>{calendar.timezone}</td>
                      <td>{calendar.holidays ?? ""}</td>
                      <td className="mono small">
                        {calendar.dates.join(", ")} {calendar.ics ? t("calendars.hasFile") : ""}
                      </td>
                      <td className="actions">
                        {mayChange(calendar) ? (
                          <>
                            <ScopedButton needs="write" onClick={() => setEdited({ draft: calendar, stored: calendar })}>
                              {t("calendars.edit")}
                            </ScopedButton>
                            <ScopedButton needs="write" className="danger" onClick={() => setRemoved(calendar)}>
                              {t("schedule.remove")}
                            </ScopedButton>
                          </>
                        ) : null}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <div className="card empty">{t("calendars.empty")}</div>
          )
        }
      </Loaded>
    </div>
  );
}

function CalendarForm(props: { draft: Draft; stored?: Calendar; onClose: () => void; onSaved: () => void }) {
  const t = useTranslations();
  const [name, setName] = useState(props.draft.name);
  const [timezone, setTimezone] = useState(props.draft.timezone);
  const [dates, setDates] = useState(props.draft.dates.join("\n"));
  const [holidays, setHolidays] = useState(props.draft.holidays ?? "");
  const [isPublic, setPublic] = useState(props.draft.public);
  const [error, setError] = useState<unknown>(null);
  async function submit(event: FormEvent) {
    event.preventDefault();
    const body = {
      name: name.trim(),
      timezone: timezone.trim(),
      dates: dates.split(/[\s,]+/).filter(Boolean),
      holidays: holidays.trim() || null,
      public: isPublic,
    };
    try {
      await (props.stored === undefined ? calendars.create(body) : calendars.change(props.stored, body));
      props.onSaved();
    } catch (problem) {
      setError(problem);
    }
  }
  const text = (label: string, value: string, set: (value: string) => void, required = false) => (
    <label className="field">
      <span>{label}</span>
      <input value={value} required={required} onChange={(event) => set(event.target.value)} />
    </label>
  );
  return (
    <Dialog title={t(props.stored === undefined ? "calendars.create" : "calendars.edit")} onClose={props.onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {text(t("calendars.name"), name, setName, true)}
        {text(t("calendars.timezone"), timezone, setTimezone, true)}
        <label className="field">
          <span>{t("calendars.dates")}</span>
          <textarea rows={5} spellCheck={false} value={dates} onChange={(event) => setDates(event.target.value)} />
          <span className="soft small">2026-12-25, 2026-12-24/2027-01-01, --05-01</span>
        </label>
        {text(t("calendars.holidaysOf"), holidays, setHolidays)}
        <label className="row">
          <input type="checkbox" checked={isPublic} onChange={(event) => setPublic(event.target.checked)} />
          {t("calendars.publicText")}
        </label>
        {error ? <Problem error={error} /> : null}
        <DialogFoot label={t("app.save")} onClose={props.onClose} />
      </form>
    </Dialog>
  );
}
