import { useEffect, useRef, useSyncExternalStore } from "react";
import { isTurn, type Pulse } from "./pulse";
import { stream, type Live } from "./stream";

/** The newest pulse, and whether pulses arrive. */
export function useLive(): Live {
  return useSyncExternalStore(stream.subscribe, stream.current);
}

/** Whether pulses arrive; unlike `useLive` it does not render again with each of them. */
export function useIsLive(): boolean {
  return useSyncExternalStore(stream.subscribe, () => stream.current().isLive);
}

/** Returns how often a page asks by itself: seldom while pulses tell it when to. */
export function useInterval(ms: number): number {
  return useIsLive() ? Math.max(ms, SELDOM_MS) : ms;
}

const SELDOM_MS = 30_000;

/** Calls a function with a pulse and the one that it was called with before, at most every two seconds. */
export function usePulseEffect(react: (pulse: Pulse, before: Pulse | null) => void): void {
  const current = useRef(react);
  current.current = react;
  useEffect(() => {
    // What a page shows was read after the pulse that was there when it was opened.
    let acted: Pulse | null = stream.current().pulse;
    return stream.subscribe(() => {
      const { pulse, isLive } = stream.current();
      if (!pulse || !isLive || !isTurn(pulse, acted)) return;
      const before = acted;
      acted = pulse;
      current.current(pulse, before);
    });
  }, []);
}
