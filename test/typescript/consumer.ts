// Checks which code the published types accept, and which code they reject.
import { Client, type KeyMetadata, password, ProofKey } from "@keyserver-operator/client";

export async function main(): Promise<KeyMetadata> {
  const client = new Client({ baseUrl: "https://keys.example", credentials: password("a", "b"), proofKey: await ProofKey.generate() });
  const page = await client.listAuditEntries({ outcome: "refused", limit: 10 }, { purpose: "types" });
  const next: number | null = page.next;
  // @ts-expect-error an outcome that there is not
  await client.listAuditEntries({ outcome: "perhaps" });
  // @ts-expect-error a field that there is not
  await client.listAuditEntries({ after: next });
  const { approvalId }: { approvalId: string } = await client.askFor("it leaked", (c) => c.disableKey({ ttag: "AA==" }), { purpose: "types" });
  // @ts-expect-error a message has no place in what is asked for
  await client.askFor(approvalId, (c) => c.computeMac({ lineage: "AA==", data: new Uint8Array(1) }));
  // @ts-expect-error a principal has to be named
  await client.getPrincipal();
  const { mac }: { mac: string } = await client.computeMac({ lineage: "AA==", data: new Uint8Array(1) });
  await client.computeMac({ lineage: mac, data: new ArrayBuffer(1) });
  // @ts-expect-error bytes, and not text
  await client.computeMac({ lineage: mac, data: "text" });
  // @ts-expect-error bytes, and not what somebody would have to make bytes of
  await client.computeMac({ lineage: mac, data: { amount: 1 } });
  return client.getKey({ ttag: "AA==" });
}
