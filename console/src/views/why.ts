import type { Explanation, GateBy, Operation, Supposition } from "@keyserver-operator/client";
import { h } from "../dom.js";
import { badge, code, facts, failure, pager, query, table, type Field } from "../parts.js";
import { stampInWords } from "../words.js";
import { address, type Context, type View } from "../view.js";

/** Returns the operations, or an empty list if the catalogue cannot be read. */
async function operations(c: Context): Promise<Operation[]> {
  try {
    return (await c.client.listOperations({ signal: c.signal })).operations;
  } catch {
    return [];
  }
}

function asked(c: Context, catalogue: Operation[]): Field[] {
  const value = c.params.get("operation");
  return [
    catalogue.length === 0
      ? { name: "operation", label: "Operation", value, required: true, hint: "As in the audit log. Example: hmacData" }
      : { name: "operation", label: "Operation", value: value ?? "hmacData", options: catalogue.map((o) => [o.operation, o.name] as const) },
    { name: "hiddenLink", label: "Key", value: c.params.get("hiddenLink"), hint: "Hidden link of the key. If it is empty, only roles are checked" },
  ];
}

const by = (b: GateBy | null): Node | string | null =>
  b === null ? null : h("span", null, `${b.kind} `, h("strong", null, b.name || "–"), " ", code(b.id),
    b.startTime === null ? "" : ` ${stampInWords(b.startTime, "from")}`, b.endTime === null ? "" : ` ${stampInWords(b.endTime, "until")}`);

const outcomes = { passed: "good", refused: "bad", notAsked: "plain" } as const;
const outcomeNames = { passed: "passed", refused: "refused", notAsked: "not checked" } as const;

/** The authorizer's steps as questions, for readers who do not know the names of the steps. */
const questions: Record<string, string> = {
  current: "Does the server know the newest changes?",
  delegation: "Is the delegation allowed?",
  principal: "Is the principal enabled?",
  certificate: "Is the certificate of the session still valid?",
  lent: "Is the operation allowed in a delegated session?",
  role: "Does a role grant the operation?",
  scope: "Does the scoped credential cover the operation and the key?",
  approval: "Is the operation approved, if it needs an approval?",
  transport: "Is the caller a transport principal, if the operation needs one?",
  key: "Does the key exist?",
  exposure: "Is the principal exposed to the peer?",
  list: "Does the ACL of the key allow the principal?",
  state: "Does the state of the key allow it?",
  uses: "Is a use of the key left, if uses are limited?",
  owner: "Does the peer that owns the key allow it?",
};

export const why: View = {
  name: "why",
  title: "Why",
  async render(c) {
    const catalogue = await operations(c);
    const operation = c.params.get("operation");
    const principalId = c.params.get("principalId") ?? "";
    const hiddenLink = c.params.get("hiddenLink") ?? "";
    const form = query("why", "Explain", [
      ...asked(c, catalogue),
      { name: "principalId", label: "Principal", value: principalId, hint: "16 hexadecimal digits. If it is empty, your own principal is used" },
    ]);
    if (operation === null) {
      return [h("p", null, "Shows how the key server would decide on a request now. The operation is not executed and no use is counted. The check itself has a row in the audit log."), form];
    }
    try {
      const answer = await c.client.getExplanation({
        operation, ...(principalId === "" ? {} : { principalId }), ...(hiddenLink === "" ? {} : { hiddenLink }),
      }, { signal: c.signal });
      return [form, explanation(answer, operation, hiddenLink)];
    } catch (error) {
      return [form, failure(error)];
    }
  },
};

function explanation(e: Explanation, operation: string, hiddenLink: string): HTMLElement {
  return h("section", { class: "panel", id: "explanation" },
    h("h2", null, e.allowed ? badge("Allowed", "good") : badge("Refused", "bad"), ` ${operation}`),
    h("p", { class: "large" }, e.detail),
    facts([
      ["Principal", code(e.principalId)],
      ...(e.allowed ? [] : [["Code", code(e.code)], ["Reason in the audit log", code(e.reason)]] as [string, Node][]),
      ["Uses left", e.uses ?? "no limit, or hidden from you"],
    ]),
    h("h3", null, "Checks, in order"),
    table("Checks", [
      { title: "Check", cell: (s) => [questions[s.step] ?? s.step, " ", h("span", { class: "small" }, s.step)] },
      { title: "Outcome", cell: (s) => badge(outcomeNames[s.outcome], outcomes[s.outcome]) },
      { title: "By", cell: (s) => by(s.by) ?? "–" },
      { title: "Detail", cell: (s) => s.detail },
    ], e.steps, "No checks were made."),
    h("h3", null, "Smallest change that would reverse this decision"),
    e.change.length === 0 ? h("p", { class: "none" }, "No such change was found, or your roles do not show it.") : h("ul", null, e.change.map((s) => h("li", null, change(s)))),
    ...(e.roles.length < 2 ? [] : [h("p", null, "Roles that would allow it: ", e.roles.map((role) => role.name).join(", "), ".")]),
    h("p", null, h("a", { href: address("who", { operation, hiddenLink }) }, "Who can?")));
}

function change(s: Supposition): (Node | string)[] {
  const words = s.change.replace(/[A-Z]/g, (capital) => ` ${capital.toLowerCase()}`);
  const called = s.name === undefined ? "" : ` ${s.name}`;
  const window = [s.startTime === undefined ? "" : ` ${stampInWords(s.startTime, "from")}`, s.endTime === undefined ? "" : ` ${stampInWords(s.endTime, "until")}`];
  const rest = Object.entries(s).filter(([name]) => !["change", "name", "startTime", "endTime"].includes(name));
  return [h("strong", null, words, called), ...window, ...rest.flatMap(([name, value]) => [` ${name} `, code(Array.isArray(value) ? value.join(", ") : String(value))])];
}

export const who: View = {
  name: "who",
  title: "Who can",
  async render(c) {
    const catalogue = await operations(c);
    const operation = c.params.get("operation");
    const hiddenLink = c.params.get("hiddenLink") ?? "";
    const after = c.params.get("after");
    const form = query("who", "Find", asked(c, catalogue));
    if (operation === null) {
      return [h("p", null, "Shows the principals that may do an operation, and the roles and ACL entries that allow it."), form];
    }
    const page = await c.client.listCapable({
      operation, limit: 100, ...(hiddenLink === "" ? {} : { hiddenLink }), ...(after === null ? {} : { after }),
    }, { signal: c.signal });
    const columns = [
      { title: "Principal", cell: (one: (typeof page.who)[number]) => [one.name, " ", code(one.principalId)] },
      { title: "Key server", number: true, cell: (one: (typeof page.who)[number]) => one.systemId },
      { title: "By", cell: (one: (typeof page.who)[number]) => one.by.map((b, i) => [i > 0 ? ", " : "", by(b)]).flat() },
      { title: "", cell: (one: (typeof page.who)[number]) => h("a", { href: address("why", { operation, hiddenLink, principalId: one.principalId }), "aria-label": `Why ${one.name}` }, "Why?") },
    ];
    return [
      form,
      table("Permitted principals", columns, page.who, "There are no permitted principals on this page."),
      ...(page.elsewhere.length === 0 ? [] : [h("h2", null, "Principals of peers, by the ACL of the key"), table("Principals of peers", columns.slice(0, 3), page.elsewhere, "")]),
      ...[pager(c, "who", page.next)].filter((p) => p !== null),
    ];
  },
};
