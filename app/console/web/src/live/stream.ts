/** The live stream. All visible tabs share one connection, because a browser allows six to a server. */

import { get } from "../api/http";
import type { Pulse } from "./pulse";

export interface Live {
  pulse: Pulse | null;
  /** Whether pulses arrive. If not, pages ask at an interval. */
  isLive: boolean;
}

const NAME = "carillon-live";
const PATH = "/api/v1/live/";
/** Without a pulse for this long the stream counts as broken. */
const SILENCE_MS = 5000;
/** A refused stream is tried again after this time. */
const RETRY_MS = 5000;

class PulseStream {
  private state: Live = { pulse: null, isLive: false };
  private readonly listeners = new Set<() => void>();
  private channel: BroadcastChannel | null = null;
  private source: EventSource | null = null;
  private leaving: AbortController | null = null;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;

  readonly current = (): Live => this.state;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.start();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.stop();
    };
  };

  private start(): void {
    document.addEventListener("visibilitychange", this.onVisibility);
    this.onVisibility();
  }

  private stop(): void {
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.leave();
  }

  private readonly onVisibility = (): void => {
    if (document.visibilityState === "hidden") this.leave();
    else if (!this.leaving) this.join();
  };

  /** Listens to the tab that has the connection, and becomes that tab when it is closed or hidden. */
  private join(): void {
    const leaving = new AbortController();
    this.leaving = leaving;
    this.channel = new BroadcastChannel(NAME);
    this.channel.onmessage = (event: MessageEvent<Pulse>) => this.receive(event.data);
    if (!("locks" in navigator)) return this.open();
    const held = () =>
      new Promise<void>((release) => {
        leaving.signal.addEventListener("abort", () => release());
        if (!leaving.signal.aborted) this.open();
      });
    navigator.locks.request(NAME, { signal: leaving.signal }, held).catch(() => undefined);
  }

  private leave(): void {
    this.leaving?.abort();
    this.leaving = null;
    this.channel?.close();
    this.channel = null;
    this.source?.close();
    this.source = null;
    clearTimeout(this.silence);
    clearTimeout(this.retry);
  }

  private open(): void {
    const source = new EventSource(PATH);
    this.source = source;
    source.addEventListener("pulse", (event) => {
      const pulse = JSON.parse((event as MessageEvent<string>).data) as Pulse;
      this.channel?.postMessage(pulse);
      this.receive(pulse);
    });
    source.addEventListener("error", () => {
      this.set({ ...this.state, isLive: false });
      // A broken stream is opened again by the browser; one that was refused is not.
      if (source.readyState === EventSource.CLOSED) this.refused();
    });
  }

  private refused(): void {
    // A refused session opens the login.
    void get("/me/").catch(() => undefined);
    this.retry = setTimeout(() => this.open(), RETRY_MS);
  }

  private receive(pulse: Pulse): void {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.set({ ...this.state, isLive: false }), SILENCE_MS);
    this.set({ pulse, isLive: true });
  }

  private set(state: Live): void {
    this.state = state;
    this.listeners.forEach((listener) => listener());
  }
}

export const stream = new PulseStream();
