import { useTranslations } from "use-intl";
import { OWN_ZONE } from "../preferences";
import { inputOf, nextHour } from "./until";

const HOUR_MS = 3_600_000;
const MORNING = 6;

/** The end of a pause: a time of this browser's zone, or one of those that are often wanted. */
export function UntilField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const t = useTranslations("schedule");
  const choices: [string, () => number][] = [
    [t("inHours", { count: 1 }), () => Date.now() + HOUR_MS],
    [t("inHours", { count: 4 }), () => Date.now() + 4 * HOUR_MS],
    [t("atSix"), () => nextHour(MORNING, Date.now())],
  ];
  return (
    <div className="tight">
      <label className="field">
        <span>{t("until", { zone: OWN_ZONE })}</span>
        <input type="datetime-local" value={value} onChange={(event) => onChange(event.target.value)} />
      </label>
      <div className="row">
        {choices.map(([text, at]) => (
          <button key={text} type="button" onClick={() => onChange(inputOf(at()))}>
            {text}
          </button>
        ))}
      </div>
    </div>
  );
}
