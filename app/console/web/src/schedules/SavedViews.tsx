import { Link } from "@tanstack/react-router";
import { Bookmark, X } from "lucide-react";
import { useState } from "react";
import { useTranslations } from "use-intl";
import { Dialog, DialogFoot, Name } from "../ui/controls";
import { readViews, storeViews, withoutView, withView, type View } from "./views";

/** The saved views of the list as links, and the button that saves what is shown. */
export function SavedViews({ q, sort }: { q: string; sort: string }) {
  const t = useTranslations("list");
  const [views, setViews] = useState(readViews);
  const [naming, setNaming] = useState(false);
  const change = (next: View[]) => {
    storeViews(next);
    setViews(next);
  };
  const isShown = (view: View) => view.q === q && view.sort === sort;
  const canSave = (q !== "" || sort !== "") && !views.some(isShown);
  if (views.length === 0 && !canSave) return null;
  return (
    <nav className="row views" aria-label={t("views")}>
      {views.map((view) => (
        <span key={view.name} className="chip view">
          <Link
            to="/schedules"
            search={{ q: view.q || undefined, sort: view.sort || undefined }}
            title={view.q}
            aria-current={isShown(view) ? "page" : undefined}
            activeProps={{}}
          >
            <Name>{view.name}</Name>
          </Link>
          <button
            type="button"
            className="plain"
            aria-label={t("removeView", { name: view.name })}
            onClick={() => change(withoutView(views, view.name))}
          >
            <X size={13} aria-hidden="true" />
          </button>
        </span>
      ))}
      {canSave ? (
        <button type="button" className="plain small" onClick={() => setNaming(true)}>
          <Bookmark size={14} aria-hidden="true" />
          {t("saveView")}
        </button>
      ) : null}
      {naming ? (
        <NameDialog
          q={q}
          onClose={() => setNaming(false)}
          onName={(name) => {
            change(withView(views, { name, q, sort }));
            setNaming(false);
          }}
        />
      ) : null}
    </nav>
  );
}

const MOST_CHARACTERS = 60;

function NameDialog({ q, onName, onClose }: { q: string; onName: (name: string) => void; onClose: () => void }) {
  const t = useTranslations();
  const [name, setName] = useState("");
  return (
    <Dialog title={t("list.saveView")} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) onName(name.trim());
        }}
      >
        <p className="soft">
          {t("list.viewText")} <code>{q}</code>
        </p>
        <label className="field">
          <span>{t("list.name")}</span>
          <input autoFocus required maxLength={MOST_CHARACTERS} value={name} onChange={(event) => setName(event.target.value)} />
        </label>
        <DialogFoot label={t("app.save")} onClose={onClose} />
      </form>
    </Dialog>
  );
}
