import { toBase64, utf8 } from "./encoding.js";

/**
 * Message for a key operation. It must be bytes; other values are not converted. Changes of the
 * bytes after the call has started are ignored. A stream is read once and never completely in
 * memory, so that a call with a stream is not retried. Browsers send streams over HTTP/2 only.
 */
export type Message = Uint8Array | ArrayBuffer | ArrayBufferView | Blob | ReadableStream<Uint8Array>;

/** Body of a request. */
export interface MessageBody {
  make: () => BodyInit;
  /** The body can be sent only once. */
  spent: boolean;
  /** Returns the reason if the message ended early. The service has then not seen the complete message. */
  broken: () => { reason: unknown } | undefined;
}

/** Messages of at most this many bytes are sent in one piece. */
const small = 1 << 20;

/**
 * Returns the body of a request whose last member is data. Throws a TypeError if data is not a
 * message: the platform would convert it to text, and the key would be used for "[object Object]".
 */
export function messageBody(fields: object, data: Message): MessageBody {
  const head = JSON.stringify(fields).slice(0, -1);
  const before = `${head}${head === "{" ? "" : ","}"data":"`;
  const after = '"}';
  let broken: { reason: unknown } | undefined;
  const encode = (from: ReadableStream<unknown>) => encoded(before, from, after, (reason) => (broken = { reason }));
  const body = (make: () => BodyInit, spent: boolean): MessageBody => ({ make, spent, broken: () => broken });

  if (data instanceof ReadableStream) {
    unread(data);
    return body(() => encode(data), true);
  }
  if (data instanceof Blob) {
    return body(() => encode(data.stream()), false);
  }
  const bytes = bytesOf(data);
  if (bytes === undefined) {
    throw new TypeError(`data: ${refusal(data)}`);
  }
  // Encode or copy the bytes now, so that later changes by the caller are not sent.
  if (bytes.length <= small) {
    const all = before + toBase64(bytes) + after;
    return body(() => all, false);
  }
  const copy = new Blob([bytes.slice()]);
  return body(() => encode(copy.stream()), false);
}

/** Throws if a stream is or was being read: the message would lack the bytes already read, usually all. */
function unread(data: ReadableStream): void {
  try {
    new Response(data);
  } catch {
    throw new TypeError("data: the stream is being read, or was already read; create a new stream for each call");
  }
}

/**
 * Returns the bytes of a value, or undefined if it is not bytes. The constructors accept bytes of
 * other realms and reject objects that only look like bytes.
 */
function bytesOf(value: unknown): Uint8Array | undefined {
  try {
    const { buffer, byteOffset, byteLength } = ArrayBuffer.isView(value) ? value : new DataView(value as ArrayBuffer);
    return new Uint8Array(buffer, byteOffset, byteLength);
  } catch {
    return undefined;
  }
}

/** Returns the error text for a value: its kind, without its content, and the remedy. */
function refusal(value: unknown): string {
  if (typeof value === "string") {
    return "must be bytes, but is a string; use new TextEncoder().encode(text)";
  }
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
    return "has no bytes any more, because its buffer was transferred; make the call before the transfer";
  }
  if (typeof (value as { pipe?: unknown } | null | undefined)?.pipe === "function") {
    return "must be a web stream, but is a stream of Node.js; use Readable.toWeb(stream) of node:stream";
  }
  const wanted = "must be a Uint8Array, an ArrayBuffer, a Blob or a ReadableStream of bytes";
  return `${wanted}, but is ${kind(value)}; encode it to bytes, always in the same way`;
}

function kind(value: unknown): string {
  if (value === null || value === undefined) {
    return String(value);
  }
  if (typeof value !== "object") {
    return `a ${typeof value}`;
  }
  return Array.isArray(value) ? "an array" : `an object (${Object.prototype.toString.call(value).slice(8, -1)})`;
}

/** Returns a stream of the bytes in base64, between two texts. If it fails, it calls tell with the reason. */
function encoded(before: string, from: ReadableStream<unknown>, after: string, tell: (reason: unknown) => void): ReadableStream<Uint8Array<ArrayBuffer>> {
  const reader = from.getReader();
  // Base64 encodes groups of three bytes. The remaining one or two bytes are put before the next piece.
  let left = new Uint8Array(0);
  const next = async (to: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>): Promise<void> => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        to.enqueue(utf8(toBase64(left) + after));
        to.close();
        return;
      }
      const piece = pieceOf(value);
      const all = new Uint8Array(left.length + piece.length);
      all.set(left);
      all.set(piece, left.length);
      const whole = all.length - (all.length % 3);
      left = all.slice(whole);
      if (whole > 0) {
        to.enqueue(utf8(toBase64(all.subarray(0, whole))));
        return;
      }
    }
  };
  return new ReadableStream({
    start: (to) => to.enqueue(utf8(before)),
    pull: async (to) => {
      try {
        await next(to);
      } catch (reason) {
        tell(reason);
        to.error(reason);
        await reader.cancel(reason).catch(() => undefined); // the source has already failed, or cannot be cancelled
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

function pieceOf(value: unknown): Uint8Array {
  const piece = bytesOf(value);
  if (piece === undefined) {
    const what = typeof value === "string" ? "a string, but must be bytes; pipe the stream through a TextEncoderStream" : `${kind(value)}, but must be bytes`;
    throw new TypeError(`data: a piece of the stream is ${what}`);
  }
  return piece;
}
