import type { HeldSession } from "@keyserver-operator/client";

/**
 * Data that survives a reload: the session and the key that it is bound to. Scripts can use the
 * key but cannot read it.
 */
export interface Kept {
  session: HeldSession;
  pair: CryptoKeyPair;
  /** Name of the principal. */
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

/** Returns undefined if the database fails, as in some private windows. A reload then requires a login. */
async function tolerant<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch {
    return undefined;
  }
}

export const load = (): Promise<Kept | undefined> => tolerant(async () => request<Kept | undefined>((await store("readonly")).get(name)));

/** Stores a session and returns the session that it replaces. Returns undefined if the database fails. */
export const save = (kept: Kept): Promise<{ replaced: Kept | undefined } | undefined> => tolerant(async () => {
  const at = await store("readwrite");
  const replaced = await request<Kept | undefined>(at.get(name));
  await request(at.put(kept, name));
  return { replaced };
});

/** Deletes the stored session if it has this id. Another tab may have replaced it. */
export const forget = (id: string): Promise<unknown> => tolerant(async () => {
  const at = await store("readwrite");
  const kept = await request<Kept | undefined>(at.get(name));
  return kept?.session.id === id ? request(at.delete(name)) : undefined;
});
