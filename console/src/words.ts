import { hexId } from "./parts.js";

/** Bits of the rights on a key, as docs/api.md defines them. */
const rights: [number, string][] = [[1, "READ"], [2, "WRITE"], [4, "OWNER"], [8, "MANDATORY_GROUP"], [16, "HOST_MATRIX"]];

/** Returns the encoded values of a body in words, each with its path. Other values are omitted. */
export function meanings(body: unknown, operations: Map<string, string>, at = ""): [string, string][] {
  if (typeof body !== "object" || body === null) {
    return [];
  }
  return Object.entries(body).flatMap(([name, value]): [string, string][] => {
    const where = Array.isArray(body) ? `${at}[${name}]` : at === "" ? name : `${at}.${name}`;
    const words = meaning(name, value, operations);
    return words !== "" ? [[where, words]] : meanings(value, operations, where);
  });
}

function meaning(name: string, value: unknown, operations: Map<string, string>): string {
  if (name === "rights" && typeof value === "number") {
    return rightsInWords(value);
  }
  if ((name === "startTime" || name === "endTime") && typeof value === "string") {
    return stampInWords(value, name === "startTime" ? "from" : "until");
  }
  if (name === "principalId" && /^(0|[1-9][0-9]{16,19})$/.test(String(value))) {
    return hexId(String(value));
  }
  if (name === "operations" && Array.isArray(value)) {
    return value.map((id) => operations.get(String(id).toLowerCase()) ?? String(id)).join(", ");
  }
  return "";
}

/** Returns rights in words, also the rights that a key server adds: WRITE adds READ, OWNER adds both. */
function rightsInWords(asked: number): string {
  const names = (of: number) => rights.filter(([bit]) => (of & bit) !== 0).map(([, word]) => word).join(", ");
  const held = asked | ((asked & 4) !== 0 ? 3 : 0) | ((asked & 2) !== 0 ? 1 : 0);
  return asked === 0 ? "none" : names(asked) + (held === asked ? "" : ` (held as ${names(held)})`);
}

/** Returns a raw time in words: the milliseconds since 1970 in UTC, as 8 bytes in base64. All zero means no bound. */
export function stampInWords(raw: string, bound: string): string {
  if (!/^[A-Za-z0-9+/]{11}=$/.test(raw)) {
    return "time in an unknown format";
  }
  const ms = [...atob(raw)].reduce((sum, c) => sum * 256n + BigInt(c.charCodeAt(0)), 0n);
  const date = new Date(Number(ms));
  return ms === 0n ? "unset, no bound" : `${bound} ${Number.isNaN(date.getTime()) ? `${ms} ms after 1970` : date.toISOString().replace(".000Z", "Z")}`;
}
