import { codeOf, type Approval, type ListApprovalsInput } from "@keyserver-operator/client";
import { h } from "../dom.js";
import { act, badge, code, facts, pager, query, table, time, until, type Tone } from "../parts.js";
import { meanings } from "../words.js";
import { address, type Context, type View } from "../view.js";

const tones: Record<string, Tone> = { pending: "warn", approved: "good", executed: "good", rejected: "bad", expired: "plain", withdrawn: "plain" };

export const approvals: View = {
  name: "approvals",
  title: "Approvals",
  async render(c) {
    const which = c.params.get("which") ?? "";
    const after = c.params.get("after");
    const list = (more: ListApprovalsInput) => c.client.listApprovals({ limit: 50, ...more, ...(after === null ? {} : { after }) }, { signal: c.signal });
    const own = { asker: c.me.principal.id };
    const wanted = which === "own" ? own : which === "all" ? {} : { open: true };
    let withheld = false; // the user may not read approvals that others requested
    const page = await list(wanted).catch((error: unknown) => {
      if (codeOf(error) !== "ACCESS_DENIED") {
        throw error;
      }
      withheld = true;
      return list({ ...wanted, ...own });
    });
    return [
      query("approvals", "Show", [{ name: "which", label: "Which", value: which, options: [["", "open requests"], ["own", "your own requests"], ["all", "all requests"]] }]),
      ...(withheld ? [h("p", null, "Your roles show only your own requests.")] : []),
      table("Approvals", [
        { title: "State", cell: (a) => badge(a.state, tones[a.state] ?? "plain") },
        { title: "Requested by", cell: (a) => a.askerName },
        { title: "Request", cell: (a) => h("a", { href: address("approval", { id: a.approvalId }) }, code(`${a.method} ${a.path}`)) },
        { title: "Reason", cell: (a) => a.reason || "–" },
        { title: "Approved", number: true, cell: (a) => `${a.approvedBy.length} of ${a.required}` },
        { title: "Expires in", cell: (a) => until(a.expiresAt, Date.now(), 0) },
      ], page.approvals, which === "own" ? "You have no requests." : which === "all" ? "There are no requests." : "There are no open requests."),
      ...[pager(c, "approvals", page.next)].filter((p) => p !== null),
    ];
  },
};

export const approval: View = {
  name: "approval",
  title: "Approval",
  under: "approvals",
  async render(c) {
    const a = await c.client.getApproval({ id: c.params.get("id") ?? "" }, { signal: c.signal });
    const shown = await digestOf(a);
    const mine = a.asker.id === c.me.principal.id;
    const words = meanings(a.body, await operationNames(c, a.body));
    return [
      facts([
        ["State", badge(a.state, tones[a.state] ?? "plain")],
        ["Requested by", `${a.askerName} (reason: ${a.reason || "none given"})`],
        ["Expires in", until(a.expiresAt, Date.now(), 0)],
        ["Operations", a.operations.join(", ")],
        ["Approved by", a.approvedBy.length === 0 ? "none yet" : a.approvedBy.map((v, i) => [i > 0 ? ", " : "", v.name, " at ", time(v.at)]).flat()],
      ]),
      h("section", { class: "panel" },
        h("h2", null, "Request to execute"),
        h("pre", { tabindex: 0 }, `${a.method} ${a.path}\n${a.body === undefined ? "" : `\n${JSON.stringify(a.body, null, 2)}`}`),
        words.length === 0 ? null : [h("h3", null, "In words"), facts(words)],
        h("p", { class: "small" }, "Digest: ", code(a.digest), " ",
          shown === a.digest ? badge("matches the request shown, checked in this browser", "good") : badge("does not match the request shown: do not decide on it", "bad"))),
      h("section", { class: "panel" },
        h("h2", null, "Objects of the request"),
        table("Objects of the request", [
          { title: "Kind", cell: (s) => s.kind },
          { title: "Name", cell: (s) => [s.name ?? "not found, or hidden from you", s.changed === true ? [" ", badge("changed since the request", "bad")] : null].flat() },
          { title: "Id", cell: (s) => code(s.id) },
        ], a.subjects ?? [], "The request can no longer be executed, so its objects are not listed.")),
      h("section", { class: "panel" },
        h("h2", null, "Rules that require the approval"),
        table("Rules", [
          { title: "Operation", cell: (r) => r.operation }, { title: "Duty of the approvers", cell: (r) => r.duty },
          { title: "Approved", number: true, cell: (r) => `${r.approved} of ${r.approvers}` },
        ], a.rules, "No rule requires the approval any more.")),
      h("div", { class: "buttons" }, decisions(c, a, mine, shown)),
    ];
  },
};

function decisions(c: Context, a: Approval, mine: boolean, digest: string): Node[] {
  const input = { id: a.approvalId, digest };
  const what = [h("p", null, code(`${a.method} ${a.path}`)), h("p", { class: "small" }, `requested by ${a.askerName}`)];
  const open = a.state === "pending" || a.state === "approved";
  if (!open || digest !== a.digest) {
    return [];
  }
  if (mine) {
    return [
      act(c, "Withdraw", what, async (client) => `The request is ${(await client.withdrawApproval({ id: a.approvalId })).state}.`),
      ...(a.state === "approved" ? [act(c, "Execute", what, async (client) => { await client.executeApproval({ id: a.approvalId }); return "The request was executed."; }, "primary")] : []),
    ];
  }
  return [
    act(c, "Reject", what, async (client) => `The request is ${(await client.reject(input)).state}.`),
    act(c, "Approve", what, async (client) => `You have approved the request. Its state: ${(await client.approve(input)).state}.`, "primary"),
  ];
}

/** Returns the names of operations by id. It is empty if the body has no operations or the list cannot be read. */
async function operationNames(c: Context, body: unknown): Promise<Map<string, string>> {
  if (!JSON.stringify(body ?? null).includes('"operations"')) {
    return new Map();
  }
  const answer = await c.client.listOperations({ signal: c.signal }).catch(() => undefined);
  return new Map(answer?.operations.map((o) => [o.id, `${o.name} (${o.operation})`]));
}

/** Returns the SHA-256 of the RFC 8785 form of the request on the page, so that users approve only what they see. */
async function digestOf({ method, path, body }: Approval): Promise<string> {
  const bytes = new TextEncoder().encode(canonical({ method, path, body: body ?? null }));
  return [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** Returns the RFC 8785 form: numbers and strings as JSON.stringify formats them, members sorted by UTF-16 units. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`;
  }
  if (typeof value === "object" && value !== null) {
    return `{${Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, of]) => `${JSON.stringify(name)}:${canonical(of)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
