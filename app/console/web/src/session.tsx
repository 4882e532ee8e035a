/** Who is logged in. Without a session the login page is shown over what was there, so that nothing typed is lost. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type FormEvent, type ReactNode } from "react";
import { useTranslations } from "use-intl";
import { session as api } from "./api/client";
import { ApiError, onLoggedOut } from "./api/http";
import type { CurrentSession } from "./api/types";
import { codeIn, takeCode } from "./fragment";
import { SessionContext } from "./sessionContext";
import { Loading, Problem } from "./ui/controls";

export function SessionProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const [ended, setEnded] = useState(false);
  const query = useQuery({ queryKey: ["session"], queryFn: currentSession, retry: 2, staleTime: 60_000 });
  useEffect(() => onLoggedOut(() => setEnded(true)), []);
  const { refetch } = query;
  useEffect(() => {
    // A link with a code, opened in a tab that is here already, changes the fragment alone.
    const onHash = () => codeIn(location.hash) && void refetch();
    window.addEventListener("hashchange", onHash);
    return () => window.removeEventListener("hashchange", onHash);
  }, [refetch]);
  if (query.isPending) return <Loading />;
  if (query.error) return <Problem error={query.error} retry={() => void query.refetch()} />;
  if (query.data === null) return <Login onDone={() => void query.refetch()} />;
  return (
    <SessionContext.Provider value={query.data}>
      {children}
      {ended ? (
        <LoginAgain
          onDone={() => {
            setEnded(false);
            void client.invalidateQueries();
          }}
        />
      ) : null}
    </SessionContext.Provider>
  );
}

/** Exchanges the one-time code of the address, if there is one, and returns the session; null if there is none. */
async function currentSession(): Promise<CurrentSession | null> {
  const code = takeCode();
  if (code) await api.login({ code }).catch(() => undefined);
  try {
    return await api.current();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

function Login({ onDone }: { onDone: () => void }) {
  const t = useTranslations("login");
  return (
    <main className="login">
      <div className="card stack">
        <div className="row">
          <img src="/console/icon.svg" alt="" width={32} height={32} />
          <h1>{t("title")}</h1>
        </div>
        <LoginForm onDone={onDone} />
      </div>
    </main>
  );
}

function LoginAgain({ onDone }: { onDone: () => void }) {
  const t = useTranslations("login");
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (element.current && !element.current.open) element.current.showModal();
  }, []);
  return (
    <dialog ref={element} aria-label={t("title")} onCancel={(event) => event.preventDefault()}>
      <div className="stack">
        <h2>{t("title")}</h2>
        <p>{t("expired")}</p>
        <LoginForm onDone={onDone} />
      </div>
    </dialog>
  );
}

const SIGN_ON = "/api/v1/session/oidc/start?return_to=";

/** Whether an identity provider is configured: then the start of a login is a redirect, which is not followed here. */
function useSignOn(): boolean {
  const query = useQuery({
    queryKey: ["sign-on"],
    queryFn: async () => (await fetch(`${SIGN_ON}%2Fconsole%2F`, { redirect: "manual" })).type === "opaqueredirect",
    retry: false,
    staleTime: Infinity,
  });
  return query.data ?? false;
}

function LoginForm({ onDone }: { onDone: () => void }) {
  const t = useTranslations("login");
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const signOn = useSignOn();
  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await api.login({ token: token.trim() });
      setToken("");
      onDone();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  }
  const refused = error instanceof ApiError && (error.status === 401 || error.status === 422);
  return (
    <form onSubmit={submit}>
      <div className="stack">
        <label className="field">
          <span>{t("token")}</span>
          <input
            type="password"
            name="token"
            autoComplete="off"
            required
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <p className="soft small">{t("hint")}</p>
        {refused ? (
          <p className="error" role="alert">
            {t("refused")}
          </p>
        ) : error ? (
          <Problem error={error} />
        ) : null}
        <div className="actions">
          <button className="primary" type="submit" disabled={busy}>
            {busy ? t("busy") : t("submit")}
          </button>
          {signOn ? (
            <a href={SIGN_ON + encodeURIComponent(location.pathname)} className="button">
              {t("sso")}
            </a>
          ) : null}
        </div>
      </div>
    </form>
  );
}
