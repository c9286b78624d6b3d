import type { CallOptions, Route } from "./call.js";
import { KeyserverError, NetworkError, type Refusal, unsent } from "./errors.js";
import { type Message, type MessageBody, messageBody } from "./message.js";
import { ProofKey } from "./proof.js";
import {
  Routes,
  type Approval,
  type ApprovalRequest,
  type BackupRequest,
  type HMACRequest,
  type HMACResponse,
  type LoginRequest,
  type LoginResponse,
  type MACRequest,
  type MACResponse,
  type VerifyMACRequest,
  type VerifyMACResponse,
} from "./routes.js";
import { type Credentials, good, held, type HeldSession } from "./session.js";

/** Options of a Client. */
export interface ClientOptions {
  /**
   * Address of the service without /api or another path, for instance
   * "https://keys.example:8443". Plain http is accepted only for loopback addresses, because it
   * sends passwords and session ids unencrypted.
   */
  baseUrl: string;
  /** Used to open sessions. Without credentials, call login() before calls that need a session. */
  credentials?: Credentials;
  /** Key that each session is bound to. If it is undefined, sessions are not bound. */
  proofKey?: ProofKey;
  /** External URL of the service (serve --external-url), if it differs from baseUrl. */
  proofUrl?: string;
  /** Session that was opened earlier with the same proof key. */
  session?: HeldSession;
  /** Called with each new session of the client, and with undefined when the session has ended. */
  onSession?: (session: HeldSession | undefined) => void;
  /** Replaces the fetch of the platform. The fetch of undici allows separate settings for connections. */
  fetch?: typeof fetch;
  /** Maximum number of retries of a call. The default is 3. */
  maxRetries?: number;
  /** Timeout of each attempt, in milliseconds. The default is 30 s. A long poll adds its wait time. */
  timeout?: number;
  /** Clock, which returns milliseconds since 1970. The default is Date.now. */
  now?: () => number;
}

const maxAnswer = 32 << 20;
const maxDetail = 4 << 10;
const maxBackoff = 30_000;
const path = "/api/sessions";
const endSession: Route = { name: "endCurrentSession", method: "DELETE", path: `${path}/current` };

/** Client of one service. It holds at most one session. */
export class Client extends Routes {
  private readonly base: string;
  private readonly known: string;
  private readonly options: ClientOptions;
  private readonly send: typeof fetch;
  private readonly now: () => number;
  private session: HeldSession | undefined;
  private opening: Promise<LoginResponse> | undefined;
  private skew = 0; // the service's clock minus ours, in milliseconds

  constructor(options: ClientOptions) {
    super();
    this.base = checked("baseUrl", options.baseUrl);
    this.known = options.proofUrl === undefined ? this.base : checked("proofUrl", options.proofUrl);
    this.options = options;
    this.send = options.fetch ?? ((...of) => fetch(...of));
    this.now = options.now ?? Date.now;
    this.session = options.session;
  }

  /** Opens a session for the next calls, with the given request instead of the client's credentials. */
  async login(request: LoginRequest, options?: CallOptions): Promise<LoginResponse> {
    const route: Route = { name: "login", method: "POST", path, open: true };
    const { answer, response } = await this.attempts<LoginResponse>({ route, body: () => JSON.stringify(request), binds: true, options });
    const there = Date.parse(response.headers.get("date") ?? "");
    this.hold(held(answer, Number.isNaN(there) ? this.now() : there, this.now()));
    return answer;
  }

  /**
   * Creates a delegated session with the rights of another principal, or a scoped credential for
   * named keys. It requires the session of the client and does not replace it.
   */
  derive(request: LoginRequest & { method: "delegated" | "scoped" }, options?: CallOptions): Promise<LoginResponse> {
    return this.ask({ name: "login", method: "POST", path, body: true }, request, options);
  }

  /** Ends the held session, if there is one. */
  async logout(options?: CallOptions): Promise<void> {
    const ending = this.session;
    if (ending === undefined) {
      return;
    }
    this.hold(undefined);
    try {
      await this.attempts({ route: endSession, session: ending, options });
    } catch (error) {
      if (!(error instanceof KeyserverError && error.reauth)) {
        throw error; // reauth means that the session had already ended
      }
    }
  }

  /** Computes the HMAC-SHA384 of a message with a key that never leaves the key server. */
  computeHmac(input: Omit<HMACRequest, "data"> & { data: Message }, options?: CallOptions): Promise<HMACResponse> {
    return this.stream({ name: "computeHmac", method: "POST", path: "/api/crypto/hmac", counts: true }, input, options);
  }

  /** Computes the HMAC-SHA384 of a message with the newest enabled key of a lineage. */
  computeMac(input: Omit<MACRequest, "data"> & { data: Message }, options?: CallOptions): Promise<MACResponse> {
    return this.stream({ name: "computeMac", method: "POST", path: "/api/crypto/mac", counts: true }, input, options);
  }

  /** Verifies the MAC of a message with one key, or with the keys of a lineage that may verify. */
  verifyMac(input: Omit<VerifyMACRequest, "data"> & { data: Message }, options?: CallOptions): Promise<VerifyMACResponse> {
    return this.stream({ name: "verifyMac", method: "POST", path: "/api/crypto/mac/verify", counts: true }, input, options);
  }

  /** Creates a backup, encrypted for an age recipient. An incomplete backup cannot be opened. */
  createBackup(input: BackupRequest, options?: CallOptions): Promise<ReadableStream<Uint8Array>> {
    return this.ask({ name: "createBackup", method: "POST", path: "/api/backups", body: true, answers: "stream" }, input, options);
  }

  /**
   * Requests an approval for a call instead of making it. Use it if the approval policy requires
   * one (APPROVAL_REQUIRED): client.askFor("it leaked", (c) => c.disableKey({ ttag })).
   */
  async askFor(reason: string, call: (client: Routes) => Promise<unknown>, options?: CallOptions): Promise<Approval> {
    const noted = await new Promise<Omit<ApprovalRequest, "reason">>((resolve, reject) => {
      call(new Noted(resolve)).then(() => reject(new TypeError("askFor: the function made no call; call a method of the client that it receives")), reject);
    });
    return this.askApproval({ ...noted, reason }, options);
  }

  protected override async ask<Out>(route: Route, input: object = {}, options: CallOptions | undefined): Promise<Out> {
    const { target, rest } = place(route, input);
    const body = route.body ? () => JSON.stringify(rest) : undefined;
    const wait = route.waits && "wait" in input ? Number(input.wait) * 1000 : 0;
    return (await this.attempts<Out>({ route, target, body, wait, options })).answer;
  }

  private async stream<Out>(route: Route, input: object & { data: Message }, options: CallOptions | undefined): Promise<Out> {
    const { data, ...fields } = input;
    const { make, spent, broken } = messageBody(fields, data);
    return (await this.attempts<Out>({ route, body: make, spent, broken, options })).answer;
  }

  /** Repeats a call until it succeeds. Throws the error of the last attempt if no other is allowed. */
  private async attempts<Out>(call: Call): Promise<{ answer: Out; response: Response }> {
    let renewed = false;
    let proved = false;
    for (let attempt = 0; ; attempt++) {
      const using = call.session ?? (call.route.open ? undefined : await this.use());
      try {
        return await this.attempt<Out>(call, using);
      } catch (error) {
        if (error instanceof KeyserverError && error.reauth && using !== undefined && call.session === undefined) {
          // The session ended early. A 401 means that the service did nothing.
          this.drop(using);
          if (!renewed && !call.spent && this.options.credentials !== undefined) {
            renewed = true;
            attempt--;
            continue;
          }
        }
        if (call.spent) {
          throw error;
        }
        const anew = proved ? undefined : this.proveAnew(call, error);
        if (anew !== undefined) {
          proved = true;
          attempt--;
          await pause(anew, call.options?.signal);
          continue;
        }
        const after = this.again(call, error, attempt);
        if (after === undefined) {
          throw error;
        }
        await pause(after, call.options?.signal);
      }
    }
  }

  /** Returns the milliseconds to wait before the next attempt, or undefined if another attempt is not allowed. */
  private again(call: Call, error: unknown, attempt: number): number | undefined {
    if (attempt >= (this.options.maxRetries ?? 3) || call.options?.signal?.aborted) {
      return undefined;
    }
    const full = Math.min(100 * 2 ** Math.min(attempt, 16), maxBackoff);
    const backoff = full / 2 + (Math.random() * full) / 2;
    if (error instanceof NetworkError) {
      return !error.sent || call.route.method === "GET" ? backoff : undefined;
    }
    if (!(error instanceof KeyserverError) || !error.retryable) {
      return undefined;
    }
    if (call.route.name === "getReadiness" && error.code === "NOT_READY") {
      return undefined; // "not ready" is a result of this call
    }
    if (call.route.counts && error.code === "PEER_UNAVAILABLE") {
      // The peer may have counted a use although its response is missing. Another attempt could
      // count a second use, so that the caller must decide.
      return undefined;
    }
    const asked = error.retryAfter * 1000;
    return asked <= maxBackoff ? Math.max(backoff, asked) : undefined;
  }

  /** Returns the milliseconds to wait before an attempt with a new proof, or undefined if none is allowed. */
  private proveAnew(call: Call, error: unknown): number | undefined {
    if (this.options.proofKey === undefined || !(error instanceof KeyserverError)) {
      return undefined;
    }
    if (error.code === "PROOF_STALE") {
      return 1000; // after a crash, the service rejects proofs of the previous second
    }
    return error.code === "PROOF_REPLAYED" && call.route.method === "GET" ? 0 : undefined;
  }

  private async use(): Promise<HeldSession> {
    for (;;) {
      const now = this.now();
      if (this.session !== undefined && good(this.session, now)) {
        this.session.used = now;
        return this.session;
      }
      this.drop(this.session);
      const credentials = this.options.credentials;
      if (credentials === undefined && this.opening === undefined) {
        throw new KeyserverError({ status: 0, code: "SESSION_NOT_FOUND", reauth: true, detail: "there is no session; call login() first" });
      }
      // Calls without a session share one login. No single call can abort it.
      this.opening ??= (async () => this.login(await credentials!()))().finally(() => (this.opening = undefined));
      await this.opening;
    }
  }

  private drop(session: HeldSession | undefined): void {
    if (session !== undefined && this.session === session) {
      this.hold(undefined);
    }
  }

  private hold(session: HeldSession | undefined): void {
    this.session = session;
    this.options.onSession?.(session);
  }

  private async attempt<Out>(call: Call, session: HeldSession | undefined): Promise<{ answer: Out; response: Response }> {
    const { route, target = route.path, options } = call;
    const limit = AbortSignal.timeout((this.options.timeout ?? 30_000) + (call.wait ?? 0));
    const headers = await this.headers(route, target, session, call);
    const body = call.body?.();
    let response: Response;
    let answer: Uint8Array<ArrayBuffer>;
    try {
      response = await this.send(this.base + target, {
        method: route.method,
        headers,
        ...(body === undefined ? {} : { body }),
        ...(body instanceof ReadableStream ? { duplex: "half" } : {}),
        signal: options?.signal === undefined ? limit : AbortSignal.any([options.signal, limit]),
        redirect: "error", // a redirect would send the session id to another address
        credentials: "omit",
        cache: "no-store",
        referrerPolicy: "no-referrer",
      } as RequestInit);
      if (response.status === 200 && route.answers === "stream") {
        return { answer: response.body as Out, response };
      }
      answer = await readAll(response);
    } catch (error) {
      options?.signal?.throwIfAborted();
      whole(call);
      if (error instanceof KeyserverError) {
        throw error;
      }
      throw new NetworkError(!unsent(error), error);
    }
    whole(call);
    if (response.status !== 200) {
      throw this.failure(call, response, answer);
    }
    return { answer: understood<Out>(route, response, answer), response };
  }

  private async headers(route: Route, target: string, session: HeldSession | undefined, call: Call): Promise<Record<string, string>> {
    const headers: Record<string, string> = { Accept: "application/json" };
    const key = this.options.proofKey;
    if (call.body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    if (call.options?.purpose !== undefined) {
      headers["X-Keyserver-For"] = call.options.purpose;
    }
    if (session !== undefined) {
      headers["Authorization"] = `${key === undefined ? "Bearer" : "DPoP"} ${session.sessionId}`;
    }
    if (key !== undefined && (session !== undefined || call.binds)) {
      headers["DPoP"] = await key.prove(route.method, this.known + target, session?.sessionId, new Date(this.now() + this.skew));
    }
    return headers;
  }

  private failure(call: Call, response: Response, body: Uint8Array<ArrayBuffer>): KeyserverError {
    const said = parsed(body) as Partial<Refusal> | undefined;
    const requestId = response.headers.get("x-request-id") ?? "";
    const about = { status: response.status, requestId: requestId.length > 64 ? "" : requestId };
    if (typeof said?.code !== "string" || said.code === "") {
      return new KeyserverError({
        ...about,
        code: "",
        detail: `the response to ${call.route.method} ${call.target ?? call.route.path} has status ${response.status} and no error code; a proxy may have sent it`,
      });
    }
    if (said.code === "PROOF_STALE") {
      // The Date header has only seconds, so that the time of the service is up to one second later.
      const skew = Date.parse(response.headers.get("date") ?? "") - this.now();
      this.skew = Number.isNaN(skew) ? 0 : skew < 0 ? Math.min(skew + 1000, 0) : skew;
    }
    return new KeyserverError({
      ...about,
      code: said.code,
      detail: String(said.detail ?? "").slice(0, maxDetail),
      retryable: said.retryable === true,
      reauth: said.reauth === true,
      scope: typeof said.scope === "string" ? said.scope : "",
      retryAfter: Math.min(Math.max(0, Number.parseInt(response.headers.get("retry-after") ?? "0", 10) || 0), 86_400),
      answer: said,
    });
  }
}

/** One call, which may take several attempts. */
interface Call {
  route: Route;
  target?: string; // path and query of the request
  body?: (() => BodyInit) | undefined; // called for each attempt
  spent?: boolean; // the body can be sent only once
  broken?: MessageBody["broken"];
  binds?: boolean; // opens a session, and a proof binds it to the proof key
  session?: HeldSession; // used instead of the client's session
  wait?: number;
  options: CallOptions | undefined;
}

/** Throws the reason if the message of a call ended early. The response is then not about the complete message. */
function whole(call: Call): void {
  const broken = call.broken?.();
  if (broken !== undefined) {
    throw broken.reason;
  }
}

/** Returns the origin of a URL option. Throws if requests would have a wrong path or be unencrypted. */
function checked(option: "baseUrl" | "proofUrl", text: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError(`${option}: must be a URL with scheme, host and port, for example https://keys.example:8443`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new TypeError(`${option}: must not contain a user name or password; remove them`);
  }
  const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && loopback)) {
    throw new TypeError(`${option}: must begin with https://, or with http:// if the host is a loopback address; otherwise credentials would be sent unencrypted`);
  }
  if (url.href !== `${url.origin}/`) {
    throw new TypeError(`${option}: must have only scheme, host and port, without /api or another path, query or fragment`);
  }
  return url.origin;
}

/** Passes each call to note instead of making it. The promise of a call never settles. */
class Noted extends Routes {
  private readonly note: (request: Omit<ApprovalRequest, "reason">) => void;

  constructor(note: (request: Omit<ApprovalRequest, "reason">) => void) {
    super();
    this.note = note;
  }

  protected override ask<Out>(route: Route, input: object = {}): Promise<Out> {
    const { target, rest } = place(route, input);
    this.note({ method: route.method, path: target, ...(route.body ? { body: rest } : {}) });
    return new Promise<Out>(() => undefined);
  }
}

/** Places the input fields in path, query and body. Throws BAD_REQUEST if they cannot form a request. */
function place(route: Route, input: object): { target: string; rest: Record<string, unknown> } {
  const rest: Record<string, unknown> = { ...input };
  const take = (name: string): unknown => {
    const value = rest[name];
    delete rest[name];
    return value;
  };
  let target = route.path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const text = String(take(name) ?? "");
    const parts = name === route.rest ? text.split("/") : [text];
    if (parts.some((part) => part === "" || part === "." || part === "..")) {
      throw new KeyserverError({ status: 0, code: "BAD_REQUEST", detail: `${name}: must not have a path segment that is empty, "." or ".."` });
    }
    return parts.map(encodeURIComponent).join("/");
  });
  const query = new URLSearchParams();
  for (const name of route.query ?? []) {
    const value = take(name);
    if (value !== undefined) {
      query.set(name, String(value));
    }
  }
  if (query.size > 0) {
    target += `?${query}`;
  }
  const [unknown] = route.body ? [] : Object.keys(rest);
  if (unknown !== undefined) {
    throw new KeyserverError({ status: 0, code: "BAD_REQUEST", detail: `${unknown}: is not a field of ${route.name}; remove it` });
  }
  return { target, rest };
}

async function readAll(response: Response): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for (const reader = response.body?.getReader(); reader !== undefined; ) {
    const { done, value } = await reader.read();
    if (done) {
      break;
    }
    length += value.length;
    if (length > maxAnswer) {
      await reader.cancel();
      throw new Error(`the response exceeds ${maxAnswer} bytes`);
    }
    pieces.push(value);
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function parsed(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return undefined;
  }
}

/** Parses a successful response. Throws if the format is wrong or a verified write is not confirmed. */
function understood<Out>(route: Route, response: Response, body: Uint8Array<ArrayBuffer>): Out {
  const kind = (response.headers.get("content-type") ?? "").split(";")[0]!.trim();
  const wanted = { text: "text/plain", bytes: "application/octet-stream", json: "application/json", stream: "" }[route.answers ?? "json"];
  const requestId = response.headers.get("x-request-id") ?? "";
  const answer = route.answers === "text" ? new TextDecoder().decode(body) : route.answers === "bytes" ? body : parsed(body);
  const shaped = wanted !== "application/json" || (typeof answer === "object" && answer !== null && !Array.isArray(answer)); // each JSON response is an object
  if (kind !== wanted || !shaped) {
    throw new KeyserverError({
      status: 200,
      code: "",
      requestId,
      detail: `the response to ${route.method} ${route.path} does not match the contract; check that baseUrl is the key server`,
    });
  }
  if (route.proves !== undefined && (answer as Record<string, unknown>)[route.proves] !== true) {
    throw new KeyserverError({ status: 200, code: "NOT_VERIFIED", requestId, answer, detail: `the response does not show that the change was read back: ${route.proves} is not true` });
  }
  return answer as Out;
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    if (signal?.aborted) {
      end();
    } else {
      signal?.addEventListener("abort", end, { once: true });
    }
  });
}
