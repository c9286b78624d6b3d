import { toBase64, utf8 } from "./encoding.js";

/**
 * A message for a key. A stream is read once and never held whole, so that a call with one is not
 * repeated. Browsers send streams over HTTP/2 only; the others go everywhere.
 */
export type Message = Uint8Array | Blob | ReadableStream<Uint8Array>;

/** Up to this many bytes are sent in one piece. */
const small = 1 << 20;

/** The body of a request whose last member is data: made anew for each attempt. */
export function messageBody(fields: object, data: Message): { spent: boolean; make: () => BodyInit } {
  const before = JSON.stringify(fields).slice(0, -1) + (Object.keys(fields).length > 0 ? "," : "") + '"data":"';
  const after = '"}';
  if (data instanceof Uint8Array && data.length <= small) {
    return { spent: false, make: () => before + toBase64(data) + after };
  }
  const open = (): ReadableStream<Uint8Array> => {
    if (data instanceof ReadableStream) {
      return data;
    }
    return (data instanceof Blob ? data : new Blob([data as Uint8Array<ArrayBuffer>])).stream();
  };
  const make = () => open().pipeThrough(encoding(before, after)) as ReadableStream<Uint8Array<ArrayBuffer>>;
  return { spent: data instanceof ReadableStream, make };
}

/** Base64 knows groups of three bytes: what is left of a piece goes before the next one. */
function encoding(before: string, after: string): TransformStream<Uint8Array, Uint8Array> {
  let left = new Uint8Array(0);
  return new TransformStream({
    start: (to) => to.enqueue(utf8(before)),
    transform(piece, to) {
      const all = new Uint8Array(left.length + piece.length);
      all.set(left);
      all.set(piece, left.length);
      const whole = all.length - (all.length % 3);
      left = all.slice(whole);
      if (whole > 0) {
        to.enqueue(utf8(toBase64(all.subarray(0, whole))));
      }
    },
    flush: (to) => to.enqueue(utf8(toBase64(left) + after)),
  });
}
