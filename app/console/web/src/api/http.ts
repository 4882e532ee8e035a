/** One place for requests: JSON in and out, problems as errors. The session's cookie is sent by the browser. */

export interface FieldError {
  field: string;
  message: string;
}

/** An answer that is not a success, with the fields of application/problem+json. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly errors: FieldError[] = [],
  ) {
    super(detail);
  }
}

/** The server does not have the call: it is older than this page. */
export class NotSupportedError extends ApiError {}

export type Query = Record<string, string | number | boolean | string[] | undefined | null>;

export function queryText(query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) params.append(name, String(one));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

export interface Options {
  body?: unknown;
  etag?: string;
  query?: Query;
  signal?: AbortSignal;
  /** The server may be too old to have the call; a 404 of an unknown path means that. */
  mayBeMissing?: boolean;
}

export interface Answer<T> {
  value: T;
  etag: string | null;
}

const listeners = new Set<() => void>();

/** Calls a function when the server refuses the session. */
export function onLoggedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export async function send<T>(method: string, path: string, options: Options = {}): Promise<Answer<T>> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.etag) headers["If-Match"] = options.etag;
  let response: Response;
  try {
    response = await fetch(`/api/v1${path}${queryText(options.query)}`, {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "");
  }
  if (!response.ok) throw await problemOf(response, path, options.mayBeMissing ?? false);
  const text = await response.text();
  return { value: (text ? JSON.parse(text) : undefined) as T, etag: response.headers.get("etag") };
}

async function problemOf(response: Response, path: string, mayBeMissing: boolean): Promise<ApiError> {
  const problem = (await response.json().catch(() => ({}))) as {
    code?: string;
    detail?: string;
    errors?: FieldError[];
  };
  const code = problem.code ?? String(response.status);
  if (response.status === 401 && path !== "/session/") listeners.forEach((listener) => listener());
  if (response.status === 405 || (mayBeMissing && isUnknownPath(response.status, problem.detail)))
    return new NotSupportedError(response.status, code, problem.detail ?? "");
  return new ApiError(response.status, code, problem.detail ?? response.statusText, problem.errors ?? []);
}

/** Returns whether a server says that it does not have a path. An object that it does not have is named instead. */
export function isUnknownPath(status: number, detail = ""): boolean {
  return status === 404 && (detail === "Not Found" || detail.startsWith("There is nothing at this path"));
}

const valueOf = <T>(answer: Answer<T>) => answer.value;
export const get = <T>(path: string, query?: Query) => send<T>("GET", path, { query }).then(valueOf);
export const post = <T>(path: string, body: unknown = {}) => send<T>("POST", path, { body }).then(valueOf);
/** The same for calls that an older server does not have. */
export const getNew = <T>(path: string, query?: Query) =>
  send<T>("GET", path, { query, mayBeMissing: true }).then(valueOf);
export const postNew = <T>(path: string, body: unknown = {}) =>
  send<T>("POST", path, { body, mayBeMissing: true }).then(valueOf);
