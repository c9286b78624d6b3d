import type { LoginRequest, LoginResponse } from "./routes.js";

/** How sessions are opened: asked anew for each login, so that tokens may change and nothing is kept. */
export type Credentials = () => LoginRequest | Promise<LoginRequest>;

type Given = string | (() => string | Promise<string>);

/** What is missing is said here, where its name is known, and not by whatever it is handed on to. */
function text(what: string, value: unknown): string {
  if (value === undefined || value === null || value === "") {
    throw new TypeError(`no ${what} was given`);
  }
  if (typeof value !== "string") {
    throw new TypeError(`the ${what} must be a string, or a function that answers one`);
  }
  return value;
}

/** A secret is looked at when it is given, and one that a function answers when it is asked for. */
function secret(what: string, given: Given): () => Promise<string> {
  if (typeof given === "function") {
    return async () => text(what, await given());
  }
  const known = text(what, given);
  return async () => known;
}

/** Logs in by name and password. */
export function password(name: string, given: Given): Credentials {
  const told = secret("password", given);
  return async () => ({ method: "password", name, password: await told() });
}

/** Logs in by name and password of a directory. */
export function ldap(name: string, given: Given): Credentials {
  const told = secret("password", given);
  return async () => ({ method: "ldap", name, password: await told() });
}

/** Logs in by a projected token of a Kubernetes service account. */
export function serviceAccount(given: Given): Credentials {
  const told = secret("token", given);
  return async () => ({ method: "kubernetes", token: (await told()).trim() });
}

/** Logs in as the principal that the client certificate of the connection is enrolled for. */
export const certificate = (): Credentials => () => ({ method: "certificate" });

/** A session with its limits on this machine's clock, which may be minutes away from the service's. */
export interface HeldSession {
  sessionId: string;
  /** Public id of the session. It does not authenticate requests. */
  id: string;
  /** End of the absolute lifetime, in milliseconds since 1970, less a margin. */
  until: number;
  /** For how many milliseconds it may lie unused, less a margin. */
  idle: number;
  /** When it was used last. */
  used: number;
}

/** A session is replaced a little before its end. */
const margin = (life: number): number => life - Math.min(life / 10, 30_000);

/** there is the service's clock when it answered. */
export function held(answer: LoginResponse, there: number, now: number): HeldSession {
  return {
    sessionId: answer.sessionId,
    id: answer.id,
    until: now + margin(Date.parse(answer.expiresAt) - there),
    idle: margin(Date.parse(answer.idleExpiresAt) - there),
    used: now,
  };
}

export const good = (session: HeldSession, now: number): boolean => now < session.until && now - session.used < session.idle;
