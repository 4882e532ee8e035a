/** Small parts that all screens use. */

import { useQuery } from "@tanstack/react-query";
import {
  createContext,
  useCallback,
  useContext,
  useEffect,
  useId,
  useRef,
  useState,
  type ButtonHTMLAttributes,
  type ReactNode,
} from "react";
import { useTranslations } from "use-intl";
import { ApiError, NotSupportedError } from "../api/http";
import { OWN_ZONE, usePreferences } from "../preferences";
import { useSession } from "../sessionContext";
import { copyText } from "./clipboard";
import { allows, type Scope } from "./scopes";
import { distanceText, instantText, readable, zoneFor } from "./time";

/** A button that says why it is disabled when the session lacks the scope. The server decides all the same. */
export function ScopedButton({
  needs,
  children,
  onClick,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { needs: Scope }) {
  const t = useTranslations("app");
  const session = useSession();
  const reason = useId();
  const allowed = allows(session.scopes, needs);
  return (
    <>
      <button
        type="button"
        {...rest}
        aria-disabled={allowed ? undefined : true}
        aria-describedby={allowed ? undefined : reason}
        title={allowed ? rest.title : t("needsScope", { scope: needs })}
        onClick={(event) => (allowed ? onClick?.(event) : event.preventDefault())}
      >
        {children}
      </button>
      {allowed ? null : (
        <span id={reason} className="visually-hidden">
          {t("needsScope", { scope: needs })}
        </span>
      )}
    </>
  );
}

/** The zone in which this page shows times. */
export function useZone(ofSchedule?: string): string {
  return zoneFor(usePreferences().zone, OWN_ZONE, ofSchedule);
}

interface TimeProps {
  at: string | null | undefined;
  zone?: string;
  /** Adds how far away it is. */
  relative?: boolean;
  /** Shows only how far away it is. */
  short?: boolean;
}

/** An instant in the chosen zone. */
export function Time({ at, zone, relative, short }: TimeProps) {
  const { locale } = usePreferences();
  const shownIn = useZone(zone);
  const now = useNow(relative ? 1000 : null);
  if (!at) return <span className="soft">–</span>;
  if (short)
    return (
      <time dateTime={at} title={instantText(at, shownIn)}>
        {distanceText(at, now, locale)}
      </time>
    );
  return (
    <time dateTime={at} title={instantText(at, "UTC")}>
      {instantText(at, shownIn)}
      {relative ? <span className="soft"> · {distanceText(at, now, locale)}</span> : null}
    </time>
  );
}

/** A sentence of the server, with its instants in the chosen zone. */
export function Sentence({ children, zone }: { children: string; zone?: string }) {
  return <>{readable(children, useZone(zone))}</>;
}

/** The current time, renewed at an interval; never while the tab is hidden. */
export function useNow(everyMs: number | null): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (everyMs === null) return undefined;
    const timer = setInterval(() => document.visibilityState === "visible" && setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

export type Tone = "good" | "bad" | "warn" | "busy" | "wait" | "quiet";

const TONES: Record<string, Tone> = {
  healthy: "good",
  active: "good",
  success: "good",
  closed: "good",
  on: "good",
  live: "good",
  late: "warn",
  silent: "warn",
  timed_out: "bad",
  failing: "bad",
  failed: "bad",
  dead: "bad",
  invalid: "bad",
  lost: "bad",
  open: "bad",
  off: "bad",
  gone: "warn",
  running: "busy",
  half_open: "warn",
  pending: "wait",
};
const SYMBOLS: Record<Tone, string> = { good: "●", bad: "▲", warn: "◆", busy: "▶", wait: "◷", quiet: "○" };

export function toneOf(word: string): Tone {
  return TONES[word] ?? "quiet";
}

/** A status or health with colour, symbol and word. A word that this page does not know is shown as it came. */
export function Badge({ word, kind }: { word: string; kind: "health" | "status" }) {
  const t = useTranslations(kind);
  const tone = toneOf(word);
  const text = t.has(word as never) ? t(word as never) : word;
  return (
    <span className={`badge tone-${tone}`}>
      <span aria-hidden="true">{SYMBOLS[tone]}</span>
      {text}
    </span>
  );
}

/** A name that a person gave: isolated, so that right-to-left text does not turn its surroundings round. */
export function Name({ children }: { children: string }) {
  return <bdi dir="auto">{children}</bdi>;
}

export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const t = useTranslations("app");
  return (
    <div className={error instanceof NotSupportedError ? "note" : "note bad"} role="alert">
      {problemText(error, t)}
      {retry && !(error instanceof NotSupportedError) ? (
        <>
          {" "}
          <button type="button" onClick={retry}>
            {t("retry")}
          </button>
        </>
      ) : null}
    </div>
  );
}

export function problemText(error: unknown, t: (key: never) => string): string {
  if (error instanceof NotSupportedError) return t("unsupported" as never);
  if (error instanceof ApiError) {
    if (error.status === 0) return t("offline" as never);
    if (error.status === 503) return t("unavailable" as never);
    const fields = error.errors.map((one) => `${one.field}: ${one.message}`).join(" ");
    return [error.message, fields].filter(Boolean).join(" ");
  }
  return error instanceof Error ? error.message : t("failed" as never);
}

export function Loading() {
  const t = useTranslations("app");
  return (
    <p className="soft" role="status">
      {t("loading")}
    </p>
  );
}

/** The states of a query: loading, failed, or its data. */
export function Loaded<T>({
  query,
  children,
}: {
  query: { data: T | undefined; error: unknown; isPending: boolean; refetch: () => unknown };
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.error) return <Problem error={query.error} retry={() => void query.refetch()} />;
  return <Loading />;
}

/** A modal dialog of the browser: it keeps the focus, and Escape closes it. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={heading} onClose={onClose}>
      <div className="stack">
        <h2 id={heading}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** The foot of a dialog: the button that does it, and the one that leaves it. Without `onDo` the form is submitted. */
export function DialogFoot(props: {
  label: string;
  onClose: () => void;
  onDo?: () => void;
  tone?: "primary" | "danger";
  disabled?: boolean;
  /** What cannot be undone has the focus on the way out. */
  isFinal?: boolean;
}) {
  const t = useTranslations("app");
  return (
    <div className="actions">
      <button
        type={props.onDo ? "button" : "submit"}
        className={props.tone ?? "primary"}
        disabled={props.disabled}
        onClick={props.onDo}
      >
        {props.label}
      </button>
      <button type="button" autoFocus={props.isFinal} onClick={props.onClose}>
        {t("cancel")}
      </button>
    </div>
  );
}

/** Asks before something is deleted. */
export function RemoveDialog(props: { text: string; onClose: () => void; onRemove: () => void }) {
  const t = useTranslations("schedule");
  return (
    <Dialog title={t("remove")} onClose={props.onClose}>
      <p>{props.text}</p>
      <DialogFoot
        label={t("remove")}
        tone="danger"
        isFinal
        onClose={props.onClose}
        onDo={() => {
          props.onRemove();
          props.onClose();
        }}
      />
    </Dialog>
  );
}

interface Toast {
  id: number;
  text: string;
  action?: { label: string; run: () => void };
}

const Toasts = createContext<(text: string, action?: Toast["action"]) => void>(() => undefined);
export const useToast = () => useContext(Toasts);
const TOAST_MS = 8000;

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const show = useCallback((text: string, action?: Toast["action"]) => {
    const id = Math.random();
    setToasts((before) => [...before.slice(-3), { id, text, action }]);
    setTimeout(() => setToasts((before) => before.filter((toast) => toast.id !== id)), TOAST_MS);
  }, []);
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // A dialog is above the page; what is shown after it is above the dialog.
    const isBelow = document.querySelector("dialog[open]") !== null;
    if (!toasts.length || !isBelow) return;
    if (element.current?.matches(":popover-open")) element.current.hidePopover();
    element.current?.showPopover();
  }, [toasts]);
  return (
    <Toasts.Provider value={show}>
      {children}
      <div ref={element} className="toasts" role="status" popover="manual">
        {toasts.map((toast) => (
          <div key={toast.id} className="toast">
            <span>{toast.text}</span>
            {toast.action ? (
              <button type="button" onClick={toast.action.run}>
                {toast.action.label}
              </button>
            ) : null}
          </div>
        ))}
      </div>
    </Toasts.Provider>
  );
}

/** Runs a change and says how it ended. */
export function useAct() {
  const toast = useToast();
  const t = useTranslations("app");
  return useCallback(
    async <T,>(work: () => Promise<T>, done?: string): Promise<T | undefined> => {
      try {
        const result = await work();
        if (done) toast(done);
        return result;
      } catch (error) {
        toast(problemText(error, t as never));
        return undefined;
      }
    },
    [toast, t],
  );
}

/** Copies a text and says so; a text that cannot be copied is shown. */
export function useCopy() {
  const toast = useToast();
  const t = useTranslations("app");
  return useCallback(
    async (text: string) => toast((await copyText(text)) ? t("copied") : text),
    [toast, t],
  );
}

/** Whether a newer build is served than the one that this page was loaded from. */
export function useNewerBuild(): boolean {
  const query = useQuery({
    queryKey: ["build"],
    queryFn: async () => (await (await fetch("/console/version.json")).json()) as { build: string },
    refetchInterval: 60_000,
    retry: false,
  });
  return query.data !== undefined && query.data.build !== __BUILD__;
}
