import type { LoginRequest, LoginResponse } from "./routes.js";

/** Returns the request of a login. It is called for each login, so that tokens may change. */
export type Credentials = () => LoginRequest | Promise<LoginRequest>;

type Given = string | (() => string | Promise<string>);

/** Returns a non-empty string. Throws here and not in later code, because the name of the value is known here. */
function text(what: string, value: unknown): string {
  if (value === undefined || value === null || value === "") {
    throw new TypeError(`${what}: must not be empty; pass a string, or a function that returns one`);
  }
  if (typeof value !== "string") {
    throw new TypeError(`${what}: must be a string, or a function that returns one`);
  }
  return value;
}

/** Checks a given secret immediately, and the secret of a function each time the function is called. */
function secret(what: string, given: Given): () => Promise<string> {
  if (typeof given === "function") {
    return async () => text(what, await given());
  }
  const known = text(what, given);
  return async () => known;
}

/** Logs in with a name and a password. */
export function password(name: string, given: Given): Credentials {
  const told = secret("password", given);
  return async () => ({ method: "password", name, password: await told() });
}

/** Logs in with a name and a password of a directory (LDAP). */
export function ldap(name: string, given: Given): Credentials {
  const told = secret("password", given);
  return async () => ({ method: "ldap", name, password: await told() });
}

/** Logs in with a projected token of a Kubernetes service account. */
export function serviceAccount(given: Given): Credentials {
  const told = secret("token", given);
  return async () => ({ method: "kubernetes", token: (await told()).trim() });
}

/** Logs in as the principal that the client certificate of the connection is enrolled for. */
export const certificate = (): Credentials => () => ({ method: "certificate" });

/** Session with its limits by this machine's clock, which may differ from the service's clock by minutes. */
export interface HeldSession {
  sessionId: string;
  /** Public id of the session. It does not authenticate requests. */
  id: string;
  /** End of the absolute lifetime, in milliseconds since 1970, minus a margin. */
  until: number;
  /** Idle timeout in milliseconds, minus a margin. */
  idle: number;
  /** Time of the last use, in milliseconds since 1970. */
  used: number;
}

/** Shortens a lifetime in milliseconds, so that a session is replaced a little before its end. */
const margin = (life: number): number => life - Math.min(life / 10, 30_000);

/** Returns the session of a login. there is the time of the response by the service's clock, now is our time. */
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
