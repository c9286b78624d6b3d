/** What a refusal says. */
export interface Refusal {
  /** 0 where the call was refused before it was sent. */
  status: number;
  /** What to match on; empty where whatever answered was no key server. */
  code: string;
  /** For people. */
  detail: string;
  /** The same request may succeed later. */
  retryable?: boolean;
  /** A new login is what helps. */
  reauth?: boolean;
  /** How far a 503 reaches: the session or the process. */
  scope?: string;
  /** Seconds that the service asked to wait. */
  retryAfter?: number;
  /** Finds the cause in the service's log. */
  requestId?: string;
  /**
   * The answer as it came: of a verified write whose re-read disagreed, and of a service that is
   * not ready, it has the shape of a success.
   */
  answer?: unknown;
}

/** A refusal or failure that the service answered, or that was found before sending. */
export class KeyserverError extends Error implements Refusal {
  override readonly name = "KeyserverError";
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly retryable: boolean;
  readonly reauth: boolean;
  readonly scope: string;
  readonly retryAfter: number;
  readonly requestId: string;
  readonly answer: unknown;

  constructor(refusal: Refusal) {
    const { status, code, detail, retryable = false, reauth = false, scope = "", retryAfter = 0, requestId = "", answer } = refusal;
    super(`${code || `HTTP ${status}`}: ${detail}${requestId && ` (request ${requestId})`}`);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.retryable = retryable;
    this.reauth = reauth;
    this.scope = scope;
    this.retryAfter = retryAfter;
    this.requestId = requestId;
    this.answer = answer;
    // It may hold what nobody should see who prints the error.
    Object.defineProperty(this, "answer", { enumerable: false });
  }
}

/** A call that got no answer. */
export class NetworkError extends Error {
  override readonly name = "NetworkError";
  /**
   * False where nothing of the request can have reached the service. Where it is true, a write may
   * have taken effect. Browsers do not tell, so there it is always true.
   */
  readonly sent: boolean;

  constructor(sent: boolean, cause: unknown) {
    const words = cause instanceof Error ? inner(cause).message : String(cause);
    super(`no answer from the service: ${words}`, { cause });
    this.sent = sent;
  }
}

/** Node's fetch says "fetch failed" and has the reason inside. */
function inner(error: Error): Error {
  return error.cause instanceof Error ? inner(error.cause) : error;
}

/** The code that the service answered, empty for any other error. */
export function codeOf(error: unknown): string {
  return error instanceof KeyserverError ? error.code : "";
}
