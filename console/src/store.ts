import type { HeldSession } from "@keyserver-operator/client";

/**
 * What outlives a reload: the session, and the key without which it is worth nothing. Scripts can
 * use the key, and none can read it.
 */
export interface Kept {
  session: HeldSession;
  pair: CryptoKeyPair;
  /** Whose it is. */
  name: string;
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

/** Keeps a session, and answers the one in whose place it is; undefined where none can be kept. */
export const save = (kept: Kept): Promise<{ replaced: Kept | undefined } | undefined> => tolerant(async () => {
  const at = await store("readwrite");
  const replaced = await request<Kept | undefined>(at.get(name));
  await request(at.put(kept, name));
  return { replaced };
});

/** Forgets a session, and not the one that another tab may have put in its place. */
export const forget = (id: string): Promise<unknown> => tolerant(async () => {
  const at = await store("readwrite");
  const kept = await request<Kept | undefined>(at.get(name));
  return kept?.session.id === id ? request(at.delete(name)) : undefined;
});
