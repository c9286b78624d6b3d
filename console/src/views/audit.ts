import { verifyReceipt, type AuditEntry } from "@keyserver-operator/client";
import { fill, h } from "../dom.js";
import { badge, code, facts, failure, hexId, pager, query, table, time, type Tone } from "../parts.js";
import { address, type Context, type View } from "../view.js";

const tones: Record<string, Tone> = { allowed: "good", refused: "bad", failed: "warn" };

/** Operations that the authorizer does not decide and therefore cannot explain. */
const unexplained = new Set(["login", "logout", "proof"]);

const who = (e: AuditEntry): Node | string => (e.principalId === "0" ? "none" : code(hexId(e.principalId)));

export const whyOf = (e: AuditEntry): HTMLElement | null =>
  e.outcome !== "refused" || e.principalId === "0" || unexplained.has(e.operation) ? null
    : h("a", { href: address("why", { operation: e.operation, principalId: hexId(e.principalId), hiddenLink: linkOf(e) }) }, "Why?");

/** Returns the hidden link of the key, which is the object of key operations, or an empty string. */
function linkOf(e: AuditEntry): string {
  return /^(hmac|mac|verify|encrypt|decrypt|authorizeKey|readKey|readACL|amendACL|export|rotateKey|changeKey)/i.test(e.operation) && /^[A-Za-z0-9+/]+={0,2}$/.test(e.object) ? e.object : "";
}

export function rows(caption: string, entries: AuditEntry[], none: string): HTMLElement {
  return table(caption, [
    { title: "Row", number: true, cell: (e) => h("a", { href: address("row", { seq: e.seq }) }, e.seq) },
    { title: "Time", cell: (e) => time(e.time) },
    { title: "Outcome", cell: (e) => [badge(e.outcome, tones[e.outcome] ?? "plain"), e.count > 1 ? ` ${e.count} times` : null] },
    { title: "Operation", cell: (e) => [e.operation, e.reason ? h("span", { class: "small" }, ` ${e.reason}`) : null] },
    { title: "Principal", cell: who },
    { title: "Object", cell: (e) => (e.object ? code(e.object) : "–") },
    { title: "From", cell: (e) => e.address || "–" },
    { title: "", cell: whyOf },
  ], entries, none);
}

const filters = ["outcome", "operation", "reason", "principalId", "object", "address", "session", "since", "until"] as const;

export const audit: View = {
  name: "audit",
  title: "Audit",
  async render(c) {
    const get = (name: string) => c.params.get(name) ?? "";
    const cursor = c.params.get("cursor");
    const page = await c.client.listAuditEntries({
      ...Object.fromEntries(filters.filter((f) => get(f) !== "").map((f) => [f, spelled(f, get(f))])),
      order: get("order") === "asc" ? "asc" : "desc", limit: 50, ...(cursor === null ? {} : { cursor: Number(cursor) }),
    }, { signal: c.signal });
    return [
      query("audit", "Filter", [
        { name: "outcome", label: "Outcome", value: get("outcome"), options: [["", "any"], ["allowed", "allowed"], ["refused", "refused"], ["failed", "failed"]] },
        { name: "operation", label: "Operation", value: get("operation"), hint: "Example: hmacData" },
        { name: "reason", label: "Reason", value: get("reason"), hint: "Example: aclDenied" },
        { name: "principalId", label: "Principal", value: get("principalId"), hint: "16 hexadecimal digits, as in the rows, or decimal" },
        { name: "object", label: "Object", value: get("object"), hint: "As in the rows" },
        { name: "address", label: "Address", value: get("address") },
        { name: "session", label: "Session", value: get("session"), hint: "Public id of the session, as in a row" },
        { name: "since", label: "Since", type: "datetime-local", value: get("since"), hint: `Time zone ${zone()}` },
        { name: "until", label: "Until", type: "datetime-local", value: get("until"), hint: `Time zone ${zone()}` },
        { name: "order", label: "Order", value: get("order"), options: [["", "newest first"], ["asc", "oldest first"]] },
      ]),
      rows("Audit rows", page.entries, "No row matches the filter."),
      ...(page.archivedBefore === null ? [] : [h("p", { class: "small" }, `Rows before ${page.archivedBefore} are in the archive only.`)]),
      ...[pager(c, "audit", page.next, "cursor")].filter((p) => p !== null),
    ];
  },
};

/** Converts a filter for the service. 16 digits are hexadecimal, as in a row; decimal ids are hardly ever so short. */
function spelled(filter: string, value: string): string {
  if (filter === "since" || filter === "until") {
    return instant(value);
  }
  return filter === "principalId" && /^[0-9a-f]{16}$/i.test(value) ? BigInt(`0x${value}`).toString() : value;
}

const zone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Converts a local time of the user, as in the field, to UTC. */
const instant = (local: string): string => new Date(local).toISOString();

/** Storage name of the log key that the user trusts. The service must not choose the key each time. */
const noted = "audit-key";

export const row: View = {
  name: "row",
  title: "Audit row",
  under: "audit",
  async render(c) {
    const seq = Number(c.params.get("seq"));
    const page = await c.client.listAuditEntries({ cursor: seq - 1, limit: 1 }, { signal: c.signal });
    const entry = page.entries.find((e) => e.seq === seq);
    if (entry === undefined) {
      return [h("p", { class: "none" }, `There is no row ${seq}.`)];
    }
    const why = whyOf(entry);
    return [
      facts([
        ["Row", entry.seq], ["Time", time(entry.time)],
        ["Outcome", [badge(entry.outcome, tones[entry.outcome] ?? "plain"), entry.reason ? ` ${entry.reason} ` : " ", why]],
        ["Operation", entry.operation], ["Object", entry.object ? code(entry.object) : "–"],
        ["Principal", entry.principalId === "0" ? "none" : [code(hexId(entry.principalId)), ` (${entry.principalId} of key server ${entry.systemId})`]],
        ["Acting delegate", entry.actorPrincipalId === undefined ? "none" : [code(hexId(entry.actorPrincipalId)), ` of key server ${entry.actorSystemId}`]],
        ["Session", entry.session === null ? "–" : h("a", { href: address("audit", { session: entry.session }) }, entry.session)],
        ["Session kind", entry.sessionKind || "–"], ["Address", entry.address || "–"], ["Purpose", entry.for || "–"],
        ["Request", code(entry.requestId)], ["Count", entry.count],
        ["Approval", entry.approval === null ? "–" : h("a", { href: address("approval", { id: entry.approval }) }, entry.approval)],
        ["Chain", `${entry.chain}, position ${entry.position}`], ["Hash", code(entry.hash)], ["Previous hash", code(entry.previousHash)],
      ]),
      await verification(c, entry),
      h("p", null, seq > 1 ? h("a", { href: address("row", { seq: seq - 1 }) }, "Previous row") : null, " ", h("a", { href: address("row", { seq: seq + 1 }) }, "Next row")),
    ];
  },
};

/** Returns a form that verifies the row in this browser. The service only provides the receipt. */
async function verification(c: Context, entry: AuditEntry): Promise<HTMLElement> {
  const said = await c.client.getAuditKey({ signal: c.signal }).catch(() => undefined);
  const kept = localStorage.getItem(noted);
  const verdict = h("div", { "aria-live": "polite", id: "verdict" });
  const key = h("input", { id: "audit-key", value: kept ?? said?.key ?? "", spellcheck: "false", autocomplete: "off" });
  const receipt = h("textarea", { id: "receipt", rows: 8, spellcheck: "false", autocomplete: "off" });
  const show = (good: boolean, words: string) => fill(verdict, h("p", { class: `notice ${good ? "good" : "bad"}`, role: good ? "status" : "alert" }, words));
  return h("form", {
    class: "panel",
    submit: async (event: SubmitEvent) => {
      event.preventDefault();
      fill(verdict);
      try {
        if (receipt.value.trim() === "") {
          receipt.value = await c.client.getAuditReceipt({ seq: entry.seq }, { signal: c.signal });
        }
      } catch (error) {
        fill(verdict, failure(error));
        return;
      }
      try {
        const { origin, size } = await verifyReceipt(entry, receipt.value, key.value);
        localStorage.setItem(noted, key.value);
        show(true, `Verified in this browser: row ${entry.seq} is in the audit log ${origin}. The key signed the checkpoint of ${size} rows.`);
      } catch (error) {
        show(false, `Not verified: ${error instanceof Error ? error.message : String(error)}.`);
      }
    },
  },
  h("h2", null, "Receipt"),
  h("div", { class: "field" }, h("label", { for: "audit-key" }, "Key of the audit log"), key,
    h("span", { class: "hint" }, kept === null ? "The key that the server reports now. Compare it with your record of the key, or enter that one. This browser stores the key after a successful verification."
      : kept === said?.key ? "The key that this browser stored. The server reports the same key." : "The key that this browser stored. The server does not report this key now: find out why before you trust another key.")),
  h("div", { class: "field" }, h("label", { for: "receipt" }, "Receipt"), receipt, h("span", { class: "hint" }, "If this is empty, the browser gets the receipt from the server. You can also paste a stored receipt.")),
  verdict,
  h("div", { class: "buttons" }, h("button", { class: "primary" }, "Verify in this browser")));
}
