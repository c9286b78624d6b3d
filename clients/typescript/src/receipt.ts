import { fromBase64, sha256, toBase64, utf8 } from "./encoding.js";
import type { AuditEntry } from "./routes.js";

/** Result of a verified receipt. */
export interface Verified {
  /** Name of the log that contains the row. */
  origin: string;
  /** Number of rows that the checkpoint covers. */
  size: number;
}

type Bytes = Uint8Array<ArrayBuffer>;

/**
 * Verifies offline that a row of the audit log, as GET /api/audit returns it, is in a tree that the
 * key has signed. The receipt is a C2SP tlog-proof, the key a vkey of C2SP signed-note. Throws an
 * error whose message names the defect.
 */
export async function verifyReceipt(row: AuditEntry, receipt: string, vkey: string): Promise<Verified> {
  checkSpelling(row);
  const content = encodeRow(row);
  if (toBase64(await sha256(content)) !== row.hash) {
    throw new Error(`row ${row.seq} was changed: its hash does not match its content`);
  }
  const proof = parseProof(receipt);
  if (proof.index !== BigInt(row.seq) - 1n) {
    throw new Error(`the receipt is for row ${proof.index + 1n}, not for row ${row.seq}`);
  }
  const checkpoint = await openCheckpoint(proof.checkpoint, await parseKey(vkey));
  const root = await rootOf(proof.index, checkpoint.size, await leafHash(content), proof.hashes);
  if (root === undefined || toBase64(root) !== checkpoint.root) {
    throw new Error(`row ${row.seq} is not in the tree that the checkpoint covers`);
  }
  return { origin: checkpoint.origin, size: Number(checkpoint.size) };
}

type Rule = [holds: (value: unknown) => boolean, words: string];

const integer = (from: number, to: number): Rule => [(value) => Number.isInteger(value) && Number(value) >= from && Number(value) <= to, `be an integer from ${from} to ${to}`];
const matches = (value: unknown, pattern: RegExp): value is string => typeof value === "string" && pattern.test(value);
const left = ([holds, words]: Rule): Rule => [(value) => value === undefined || holds(value), `${words}, or absent`];

// Half a surrogate pair would be encoded like U+FFFD, the replacement character.
const text: Rule = [(value) => typeof value === "string" && !/\p{Surrogate}/u.test(value), "be a string of valid Unicode"];
const hash: Rule = [(value) => typeof value === "string" && canonical(value)?.length === 32, "be a hash of 32 bytes in base64"];
const decimal: Rule = [
  (value) => matches(value, /^(0|[1-9]\d{0,19})$/) && BigInt(value) < 1n << 64n,
  "be a decimal number from 0 to 18446744073709551615 without sign or leading zeros, as a string",
];
// Zero would be encoded like null.
const hexOrNull: Rule = [(value) => value === null || matches(value, /^(?!0{16})[0-9a-f]{16}$/), "be 16 lower-case hexadecimal digits that are not all zero, or null"];
// Date parses 31 February as a day in March.
const time: Rule = [
  (value) => matches(value, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,5}[1-9])?Z$/) && isoSecond(value) === value.slice(0, 19),
  "be a time of RFC 3339 in UTC with at most six fractional digits, the last one not zero",
];

/**
 * Format of each member of a row. The hash does not protect the format: another text, with another
 * meaning for a reader, could be encoded to the same bytes.
 */
const spelling: Record<keyof AuditEntry, Rule> = {
  seq: integer(1, Number.MAX_SAFE_INTEGER), time, operation: text, outcome: text, reason: text,
  principalId: decimal, systemId: integer(0, 0xffff_ffff), object: text, sessionKind: text, requestId: text,
  filename: left(text), address: text, session: hexOrNull, for: text, count: integer(1, Number.MAX_SAFE_INTEGER),
  approval: hexOrNull, actorPrincipalId: left(decimal), actorSystemId: left(integer(0, 0xffff_ffff)),
  chain: integer(1, Number.MAX_SAFE_INTEGER), position: integer(1, Number.MAX_SAFE_INTEGER), hash, previousHash: hash,
};

function checkSpelling(row: AuditEntry): void {
  const unknown = Object.keys(row).find((name) => !Object.hasOwn(spelling, name));
  if (unknown !== undefined) {
    throw new Error(`the row has the member ${JSON.stringify(unknown)}, which receipts do not cover`);
  }
  for (const [name, [holds, words]] of Object.entries(spelling)) {
    if (!holds(row[name as keyof AuditEntry])) {
      throw new Error(`${name} of the row must ${words}`);
    }
  }
  const { actorPrincipalId: id, actorSystemId: system } = row;
  if ((id === undefined) !== (system === undefined) || (id === "0" && system === 0)) {
    throw new Error("actorPrincipalId and actorSystemId of the row must identify a principal, or both be absent");
  }
}

/** Encodes a row as docs/audit.md defines. The row must have passed checkSpelling. */
function encodeRow(row: AuditEntry): Bytes {
  const parts: Uint8Array[] = [];
  const number = (value: number | bigint) => {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigInt64(0, BigInt(value));
    parts.push(bytes);
  };
  const text = (value: string) => {
    const bytes = utf8(value);
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, bytes.length);
    parts.push(length, bytes);
  };
  const id = (value: bigint) => {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, value);
    parts.push(bytes);
  };
  const hex = (value: string | null) => id(value === null ? 0n : BigInt(`0x${value}`));

  const full = row.address !== "" || row.session !== null || row.for !== "" || row.count > 1 || row.approval !== null;
  const form = full ? 3 : row.actorPrincipalId !== undefined ? 2 : 1;
  parts.push(Uint8Array.of(form), digest(row.previousHash, "previousHash"));
  number(row.chain);
  number(row.position);
  number(row.seq);
  number(microseconds(row.time));
  text(row.operation);
  text(row.outcome);
  text(row.reason);
  number(row.systemId);
  id(BigInt(row.principalId));
  text(row.object);
  text(row.sessionKind);
  text(row.requestId);
  text(row.filename ?? "");
  if (form >= 2) {
    number(row.actorSystemId ?? 0);
    id(BigInt(row.actorPrincipalId ?? 0));
  }
  if (form === 3) {
    text(row.address);
    hex(row.session);
    text(row.for);
    number(row.count);
    hex(row.approval);
  }
  return join(...parts);
}

/** Returns the date and second that Date parses from a time, or an empty string if it cannot parse it. */
function isoSecond(time: string): string {
  const at = Date.parse(`${time.slice(0, 19)}Z`);
  return Number.isNaN(at) ? "" : new Date(at).toISOString().slice(0, 19);
}

/** Returns the microseconds since 1970. A Date has only milliseconds. */
function microseconds(time: string): bigint {
  return BigInt(Date.parse(`${time.slice(0, 19)}Z`)) * 1000n + BigInt(time.slice(20, -1).padEnd(6, "0"));
}

function join(...parts: Uint8Array[]): Bytes {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Decodes the canonical base64 of 32 bytes. Throws if the text is anything else. */
function digest(text: string, what: string): Bytes {
  const bytes = canonical(text);
  if (bytes?.length !== 32) {
    throw new Error(`${what} is not a hash of 32 bytes in base64`);
  }
  return bytes;
}

/** Decodes canonical base64, or returns undefined. atob alone also accepts spaces and missing padding. */
function canonical(text: string): Bytes | undefined {
  try {
    const bytes = fromBase64(text);
    return toBase64(bytes) === text ? bytes : undefined;
  } catch {
    return undefined;
  }
}

// A tree of 2^63 leaves has 63 levels.
const maxHashes = 63;

function parseProof(text: string): { index: bigint; hashes: Bytes[]; checkpoint: string } {
  const at = text.indexOf("\n\n");
  const [magic, first = "", ...lines] = text.slice(0, Math.max(at, 0)).split("\n");
  const index = /^index (0|[1-9]\d{0,18})$/.exec(first)?.[1];
  if (magic !== "c2sp.org/tlog-proof@v1" || index === undefined || lines.length > maxHashes) {
    throw new Error("the receipt is not a C2SP tlog-proof of a row");
  }
  return { index: BigInt(index), hashes: lines.map((line) => digest(line, "a line of the receipt")), checkpoint: text.slice(at + 2) };
}

interface VerificationKey {
  name: string;
  id: Bytes;
  key: CryptoKey;
}

/** Parses NAME+ID+BASE64 with the algorithm 1, which is Ed25519. Throws if the id is not that of the key. */
async function parseKey(vkey: string): Promise<VerificationKey> {
  const [, name, id, text] = /^([^\s+]+)\+([0-9a-f]{8})\+(\S+)$/.exec(vkey.trim()) ?? [];
  const bytes = canonical(text ?? "");
  if (name === undefined || bytes?.length !== 33 || bytes[0] !== 1) {
    throw new Error("the key is not an Ed25519 key in the C2SP signed-note format (vkey)");
  }
  const expected = (await sha256(join(utf8(`${name}\n`), bytes))).subarray(0, 4);
  if ([...expected].map((byte) => byte.toString(16).padStart(2, "0")).join("") !== id) {
    throw new Error("the key was mistyped: its id does not match its other parts");
  }
  return { name, id: expected, key: await crypto.subtle.importKey("raw", bytes.slice(1), { name: "Ed25519" }, false, ["verify"]) };
}

/** Parses a checkpoint and verifies the signature of the key. Other signatures, such as those of witnesses, are ignored. */
async function openCheckpoint(text: string, by: VerificationKey): Promise<{ origin: string; size: bigint; root: string }> {
  const end = text.lastIndexOf("\n\n");
  const signed = text.slice(0, end + 1);
  const [origin, size, root] = signed.split("\n");
  if (end < 0 || !/^(0|[1-9]\d{0,18})$/.test(size ?? "") || canonical(root ?? "")?.length !== 32) {
    throw new Error("the receipt contains no C2SP tlog-checkpoint");
  }
  if (origin !== by.name) {
    throw new Error(`the checkpoint is from the log ${origin}, but the key belongs to ${by.name}`);
  }
  for (const line of text.slice(end + 2).split("\n")) {
    const [, name, signature] = /^— (\S+) (\S+)$/.exec(line) ?? [];
    const bytes = canonical(signature ?? "");
    if (name === by.name && bytes?.length === 68 && by.id.every((byte, i) => bytes[i] === byte)) {
      if (await crypto.subtle.verify("Ed25519", by.key, bytes.slice(4), utf8(signed))) {
        return { origin: by.name, size: BigInt(size!), root: root! };
      }
      throw new Error("the checkpoint is forged: its signature does not match the key");
    }
  }
  throw new Error("the checkpoint is not signed by the key");
}

const leafHash = (content: Bytes): Promise<Bytes> => sha256(join(Uint8Array.of(0), content));
const nodeHash = (left: Bytes, right: Bytes): Promise<Bytes> => sha256(join(Uint8Array.of(1), left, right));

/**
 * Computes the root from a leaf and the hashes of its proof (RFC 9162, section 2.1.3.2). Returns
 * undefined if the number of hashes does not fit the index and the size.
 */
async function rootOf(index: bigint, size: bigint, leaf: Bytes, hashes: Bytes[]): Promise<Bytes | undefined> {
  if (index >= size) {
    return undefined;
  }
  let fn = index;
  let sn = size - 1n;
  let root = leaf;
  for (const hash of hashes) {
    if (sn === 0n) {
      return undefined;
    }
    if (fn % 2n === 1n || fn === sn) {
      root = await nodeHash(hash, root);
      while (fn % 2n === 0n && fn !== 0n) {
        fn /= 2n;
        sn /= 2n;
      }
    } else {
      root = await nodeHash(root, hash);
    }
    fn /= 2n;
    sn /= 2n;
  }
  return sn === 0n ? root : undefined;
}
