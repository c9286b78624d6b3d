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
    const hint = codes(cause).some((code) => unknownIssuer.has(code))
      ? "; Node.js trusts the CAs of a file that NODE_EXTRA_CA_CERTS names when it starts, for instance NODE_EXTRA_CA_CERTS=/path/to/ca.crt"
      : "";
    super(`no answer from the service: ${words}${hint}`, { cause });
    this.sent = sent;
  }
}

/** No connection was there. */
const unconnected = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

/** Nobody whom Node.js trusts has signed the certificate of the service. */
const unknownIssuer = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/** What else Node.js refuses a certificate for: the codes of OpenSSL, and that of another name. */
const badCertificate = new Set([
  "CERT_CHAIN_TOO_LONG",
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
  "CERT_REJECTED",
  "CERT_REVOKED",
  "CERT_SIGNATURE_FAILURE",
  "CERT_UNTRUSTED",
  "ERROR_IN_CERT_NOT_AFTER_FIELD",
  "ERROR_IN_CERT_NOT_BEFORE_FIELD",
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "HOSTNAME_MISMATCH",
  "INVALID_CA",
  "INVALID_PURPOSE",
  "PATH_LENGTH_EXCEEDED",
  "UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY",
  "UNABLE_TO_DECRYPT_CERT_SIGNATURE",
]);

/**
 * Nothing was sent where there was no connection yet. A certificate is judged before the first
 * byte of a request goes.
 */
export function unsent(error: unknown): boolean {
  return codes(error).some((code) => unconnected.has(code) || unknownIssuer.has(code) || badCertificate.has(code));
}

/** The codes of an error and of what caused it. */
function codes(error: unknown): string[] {
  const found: string[] = [];
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const { code } = at as { code?: unknown };
    if (typeof code === "string") {
      found.push(code);
    }
  }
  return found;
}

/** Node's fetch says "fetch failed" and has the reason inside. */
function inner(error: Error): Error {
  return error.cause instanceof Error ? inner(error.cause) : error;
}

/** The code that the service answered, empty for any other error. */
export function codeOf(error: unknown): string {
  return error instanceof KeyserverError ? error.code : "";
}
