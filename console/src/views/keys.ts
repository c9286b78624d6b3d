import type { KeyFacts } from "@keyserver-operator/client";
import { h } from "../dom.js";
import { act, badge, code, pager, query, table, time, type Tone } from "../parts.js";
import { address, type Context, type View } from "../view.js";

const tones: Record<string, Tone> = { enabled: "good", verifyOnly: "plain", disabled: "warn", destroying: "bad", destroyed: "bad" };

/** Groups keys by key lineage, each with the newest key first. */
function lines(keys: KeyFacts[]): [string, KeyFacts[]][] {
  const of = new Map<string, KeyFacts[]>();
  for (const key of keys) {
    const line = key.lineage ?? key.ttag;
    of.set(line, [...(of.get(line) ?? []), key]);
  }
  return [...of].map(([line, list]) => [line, list.sort((a, b) => (b.generation ?? 0) - (a.generation ?? 0))]);
}

export const keys: View = {
  name: "keys",
  title: "Keys",
  async render(c) {
    const get = (name: string) => c.params.get(name) ?? "";
    const page = await c.client.listKeys({
      limit: 50, ...(get("lineage") === "" ? {} : { lineage: get("lineage") }), ...(get("state") === "" ? {} : { state: get("state") as "enabled" }),
      ...(get("after") === "" ? {} : { after: get("after") }),
    }, { signal: c.signal });
    return [
      query("keys", "Filter", [
        { name: "lineage", label: "Key lineage", value: get("lineage"), hint: "Hidden link of the first key of the lineage" },
        { name: "state", label: "State", value: get("state"), options: [["", "any"], ...Object.keys(tones).map((s) => [s, s === "verifyOnly" ? "verifies only" : s] as const)] },
      ]),
      ...(page.keys.length === 0 ? [h("p", { class: "none" }, "There are no matching keys that you may read.")] : []),
      ...lines(page.keys).map(([line, list]) => h("section", { class: "panel" },
        h("h2", null, "Key lineage ", h("a", { href: address("keys", { lineage: line }) }, code(line))),
        h("p", { class: "small" }, rotation(list[0]!)),
        table(`Keys of the lineage ${line}`, [
          { title: "Generation", number: true, cell: (k) => k.generation ?? "–" },
          { title: "State", cell: (k) => [badge(k.state === "verifyOnly" ? "verifies only" : k.state ?? "unknown", tones[k.state ?? ""] ?? "plain"), k.destroyAt === null ? null : [" until ", time(k.destroyAt)]].flat() },
          { title: "Algorithm", cell: (k) => k.algorithm ?? "–" },
          { title: "Created", cell: (k) => time(k.createdAt) },
          { title: "Uses", number: true, cell: (k) => k.uses ?? "–" },
          { title: "Last used", cell: (k) => time(k.lastUsedAt) },
          { title: "Hidden link", cell: (k) => code(k.ttag) },
          { title: "", cell: (k) => actions(c, k, k === list[0]) },
        ], list, ""))),
      ...[pager(c, "keys", page.next)].filter((p) => p !== null),
    ];
  },
};

function rotation(k: KeyFacts): string {
  const r = k.rotation;
  if (r === null || r.everyDays === 0) {
    return "Rotation: manual.";
  }
  return `Rotation: every ${r.everyDays} days. An older key verifies ${r.verifyOnlyDays === 0 ? "without a time limit" : `for ${r.verifyOnlyDays} more days`}.`;
}

function actions(c: Context, k: KeyFacts, newest: boolean): Node[] {
  const name = (verb: string) => `${verb} generation ${k.generation} of ${k.lineage}`;
  const state = async (of: Promise<{ state: string }>) => `The key is ${(await of).state} now.`;
  const all: [boolean, () => HTMLElement][] = [
    [newest && k.state === "enabled", () => act(c, "Rotate", ["A successor with the same ACL replaces the key. Existing MACs stay valid."],
      async (client) => { await client.rotateKey({ ttag: k.ttag }); return "The lineage has a new key."; }, "primary", name("Rotate"))],
    [k.state === "enabled" || k.state === "verifyOnly", () => act(c, "Disable", ["The key server refuses every use of the key until it is enabled again."],
      (client) => state(client.disableKey({ ttag: k.ttag })), "danger", name("Disable"))],
    [k.state === "disabled", () => act(c, "Enable", ["The key can be used again."], (client) => state(client.enableKey({ ttag: k.ttag })), "primary", name("Enable"))],
    [k.state === "destroying", () => act(c, "Restore", ["The key keeps its bytes and becomes disabled."], (client) => state(client.restoreKey({ ttag: k.ttag })), "primary", name("Restore"))],
  ];
  return all.filter(([holds]) => holds).map(([, make]) => make());
}

