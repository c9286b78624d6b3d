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
      ? { name: "operation", label: "Operation", value, required: true, hint: "As the audit trail spells it, for instance hmacData" }
      : { name: "operation", label: "Operation", value: value ?? "hmacData", options: catalogue.map((o) => [o.operation, o.name] as const) },
    { name: "hiddenLink", label: "Key", value: c.params.get("hiddenLink"), hint: "Its hidden link; left out, only roles count" },
  ];
}

const by = (b: GateBy | null): Node | string | null =>
  b === null ? null : h("span", null, `${b.kind} `, h("strong", null, b.name || "–"), " ", code(b.id),
    b.startTime === null ? "" : ` ${stampInWords(b.startTime, "from")}`, b.endTime === null ? "" : ` ${stampInWords(b.endTime, "until")}`);

const outcomes = { passed: "good", refused: "bad", notAsked: "plain" } as const;
const outcomeNames = { passed: "passed", refused: "refused", notAsked: "not asked" } as const;

/** The authorizer's steps as questions, for readers who do not know the names of the steps. */
const questions: Record<string, string> = {
  current: "Does this process know the newest changes?",
  delegation: "May the caller act for whom he acts for?",
  principal: "Is the principal enabled?",
  certificate: "Is its certificate good?",
  lent: "Is the operation one that is lent?",
  role: "Does a role grant the operation?",
  scope: "Is it in the scope of the credential?",
  approval: "Is it free of a rule that takes an approval?",
  transport: "Is the caller a transport principal, where it takes one?",
  key: "Is the key known?",
  exposure: "Is the principal exposed to the peer?",
  list: "Does the key's list let him?",
  state: "Does the state of the key allow it?",
  uses: "Is a use left?",
  owner: "Does he own what it takes an owner for?",
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
      { name: "principalId", label: "Principal", value: principalId, hint: "16 hexadecimal digits; left out, yourself" },
    ]);
    if (operation === null) {
      return [h("p", null, "What the gate would answer now, asked by the code that decides. Nothing is done, and no use is counted; the question has a row in the audit trail."), form];
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
      ...(e.allowed ? [] : [["Code", code(e.code)], ["Reason in the audit trail", code(e.reason)]] as [string, Node][]),
      ["Uses left", e.uses ?? "without a limit"],
    ]),
    h("h3", null, "What the gate asks, in its order"),
    table("What the gate asks", [
      { title: "Question", cell: (s) => [questions[s.step] ?? s.step, " ", h("span", { class: "small" }, s.step)] },
      { title: "Outcome", cell: (s) => badge(outcomeNames[s.outcome], outcomes[s.outcome]) },
      { title: "By", cell: (s) => by(s.by) ?? "–" },
      { title: "Detail", cell: (s) => s.detail },
    ], e.steps, "Nothing was asked."),
    h("h3", null, "The smallest change that would turn it round"),
    e.change.length === 0 ? h("p", { class: "none" }, "There is none that could be supposed, or your roles do not show it.") : h("ul", null, e.change.map((s) => h("li", null, change(s)))),
    ...(e.roles.length < 2 ? [] : [h("p", null, "Roles that would do: ", e.roles.map((role) => role.name).join(", "), ".")]),
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
      return [h("p", null, "Whom the gate would let, and by what."), form];
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
      table("Principals who can", columns, page.who, "Nobody of this key server can, on this page."),
      ...(page.elsewhere.length === 0 ? [] : [h("h2", null, "Of peers, by the list of the key"), table("Principals of peers", columns.slice(0, 3), page.elsewhere, "")]),
      ...[pager(c, "who", page.next)].filter((p) => p !== null),
    ];
  },
};
