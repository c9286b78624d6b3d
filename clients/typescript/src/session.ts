import type { LoginRequest, LoginResponse } from "./routes.js";

/** How sessions are opened: asked anew for each login, so that tokens may change and nothing is kept. */
export type Credentials = () => LoginRequest | Promise<LoginRequest>;

type Given = string | (() => string | Promise<string>);

const told = async (given: Given): Promise<string> => (typeof given === "string" ? given : given());

/** Logs in by name and password. */
export const password = (name: string, secret: Given): Credentials =>
  async () => ({ method: "password", name, password: await told(secret) });

/** Logs in by name and password of a directory. */
export const ldap = (name: string, secret: Given): Credentials =>
  async () => ({ method: "ldap", name, password: await told(secret) });

/** Logs in by a projected token of a Kubernetes service account. */
export const serviceAccount = (token: Given): Credentials =>
  async () => ({ method: "kubernetes", token: (await told(token)).trim() });

/** Logs in as the principal that the client certificate of the connection is enrolled for. */
export const certificate = (): Credentials => () => ({ method: "certificate" });

/** A session with its limits on this machine's clock, which may be minutes away from the service's. */
export interface HeldSession {
  sessionId: string;
  /** Names the session and opens nothing. */
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
