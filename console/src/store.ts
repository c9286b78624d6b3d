import type { HeldSession } from "@keyserver-operator/client";

/**
 * What outlives a reload: the session, and the key without which it is worth nothing. Scripts can
 * use the key, and none can read it.
 */
export interface Kept {
  session: HeldSession;
  pair: CryptoKeyPair;
}

const name = "kept";

function request<T>(of: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    of.onsuccess = () => resolve(of.result);
    of.onerror = () => reject(of.error);
  });
}

async function store(mode: IDBTransactionMode): Promise<IDBObjectStore> {
  const open = indexedDB.open("keyserver-console", 1);
  open.onupgradeneeded = () => open.result.createObjectStore(name);
  return (await request(open)).transaction(name, mode).objectStore(name);
}

/** Without a database, as in some private windows, a reload asks for another login. */
async function tolerant<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch {
    return undefined;
  }
}

export const load = (): Promise<Kept | undefined> => tolerant(async () => request<Kept | undefined>((await store("readonly")).get(name)));
export const save = (kept: Kept): Promise<unknown> => tolerant(async () => request((await store("readwrite")).put(kept, name)));
export const forget = (): Promise<unknown> => tolerant(async () => request((await store("readwrite")).delete(name)));
