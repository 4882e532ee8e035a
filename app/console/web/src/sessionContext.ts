/** The session that all parts of the page share. */

import { createContext, useContext } from "react";
import type { CurrentSession } from "./api/types";

export const SessionContext = createContext<CurrentSession | null>(null);

export function useSession(): CurrentSession {
  const value = useContext(SessionContext);
  if (!value) throw new Error("SessionProvider is missing");
  return value;
}
