import { Fragment } from "react";
import { useTranslations } from "use-intl";

const REDACTED = "***";

/** A value as JSON; what stands for a secret is marked. */
export function Json({ value, label }: { value: unknown; label: string }) {
  const t = useTranslations("runs");
  const parts = (JSON.stringify(value, null, 2) ?? "null").split(REDACTED);
  return (
    <>
      <pre tabIndex={0} aria-label={label}>
        {parts.map((part, index) => (
          <Fragment key={index}>
            {index ? <mark>{REDACTED}</mark> : null}
            {part}
          </Fragment>
        ))}
      </pre>
      {parts.length > 1 ? <p className="soft small">{t("secrets")}</p> : null}
    </>
  );
}
