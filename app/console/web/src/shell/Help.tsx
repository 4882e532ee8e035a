import { useTranslations } from "use-intl";
import { Dialog } from "../ui/controls";

const KEYS = [
  ["/", "search"],
  ["Ctrl K", "palette"],
  ["g o · g s · g u · g l · g w", "go"],
  ["g r · g b · g m · g c · g a", "goOn"],
  ["j · k", "rows"],
  ["Enter", "open"],
  ["x", "select"],
  ["p", "pause"],
  ["r", "run"],
  ["e", "explain"],
  ["t", "theme"],
  ["z", "zone"],
  ["?", "help"],
] as const;

export function Help({ onClose }: { onClose: () => void }) {
  const t = useTranslations();
  return (
    <Dialog title={t("app.help")} onClose={onClose}>
      <dl className="facts">
        {KEYS.map(([key, name]) => (
          <div key={key} style={{ display: "contents" }}>
            <dt>
              <kbd className="mono">{key}</kbd>
            </dt>
            <dd>{t(`keys.${name}`)}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button>{t("app.close")}</button>
      </form>
    </Dialog>
  );
}
