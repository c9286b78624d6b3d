/** Contents of a KeyserverError. */
export interface Refusal {
  /** HTTP status, or 0 if the call was rejected before it was sent. */
  status: number;
  /** Error code for programs. It is empty if the response is not from a key server. */
  code: string;
  /** Message for people. */
  detail: string;
  /** The same request may succeed later. */
  retryable?: boolean;
  /** A new login is required. */
  reauth?: boolean;
  /** Scope of a 503: the session or the process. */
  scope?: string;
  /** Seconds to wait before the next attempt, from the header Retry-After. */
  retryAfter?: number;
  /** Id of the request, to find the cause in the service's log. */
  requestId?: string;
  /**
   * Response body as received. It has the format of a success if the re-read of a verified write
   * did not match, or if the service is not ready.
   */
  answer?: unknown;
}

/** An error that the service returned, or that was found before the call was sent. */
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
    // The response may contain secrets. Do not show it if the error is printed.
    Object.defineProperty(this, "answer", { enumerable: false });
  }
}

/** Error of a call that received no response. */
export class NetworkError extends Error {
  override readonly name = "NetworkError";
  /**
   * False if no part of the request can have reached the service. If it is true, a write may have
   * taken effect. Browsers do not report this, so that there it is always true.
   */
  readonly sent: boolean;

  constructor(sent: boolean, cause: unknown) {
    const words = cause instanceof Error ? inner(cause).message : String(cause);
    const hint = codes(cause).some((code) => unknownIssuer.has(code))
      ? "; to trust the CA of the key server, start Node.js with NODE_EXTRA_CA_CERTS=/path/to/ca.crt"
      : "";
    super(`no response from the key server: ${words}${hint}`, { cause });
    this.sent = sent;
  }
}

/** Codes of failures to connect. */
const unconnected = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

/** Codes of Node.js for a certificate whose issuer it does not trust. */
const unknownIssuer = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/** Other codes of Node.js for a rejected certificate: those of OpenSSL, and the code for a wrong host name. */
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
 * Returns true if the error shows that nothing was sent. Either there was no connection, or the
 * certificate was rejected, which happens before the first byte of a request is sent.
 */
export function unsent(error: unknown): boolean {
  return codes(error).some((code) => unconnected.has(code) || unknownIssuer.has(code) || badCertificate.has(code));
}

/** Returns the codes of an error and of its causes. */
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

/** Returns the innermost cause. The fetch of Node.js only reports "fetch failed", with the reason as cause. */
function inner(error: Error): Error {
  return error.cause instanceof Error ? inner(error.cause) : error;
}

/** Returns the code of a KeyserverError, or an empty string for any other error. */
export function codeOf(error: unknown): string {
  return error instanceof KeyserverError ? error.code : "";
}
