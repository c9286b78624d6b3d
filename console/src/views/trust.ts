import type { Principal, TrustedServer } from "@keyserver-operator/client";
import { h } from "../dom.js";
import { badge, code, facts, pager, panel, query, table, until } from "../parts.js";
import { address, type Context, type View } from "../view.js";

/** Rows per page, also of lists that the service returns completely. */
const pageSize = 50;

/** Filters a complete list and returns one page of it. by is the parameter with the offset. */
function part<T>(c: Context, list: T[], text: (one: T) => string, by: string): { shown: T[]; found: number; next: number | null } {
  const wanted = (c.params.get("name") ?? "").toLowerCase();
  const found = list.filter((one) => text(one).toLowerCase().includes(wanted));
  const from = Number(c.params.get(by) ?? 0);
  return { shown: found.slice(from, from + pageSize), found: found.length, next: from + pageSize < found.length ? from + pageSize : null };
}

const nameOf = (s: TrustedServer): string => s.friendlyName || s.serverName || `key server ${s.systemId}`;

export const trust: View = {
  name: "trust",
  title: "Trust",
  async render(c) {
    const options = { signal: c.signal };
    return [
      query("trust", "Find", [{ name: "name", label: "Name of a peer or CA contains", value: c.params.get("name") }]),
      h("div", { class: "map" }, ...(await Promise.all([
        panel("Trusted CAs", c.client.listTrustedCas({}, options), ({ trustedCAs }) => {
          const { shown, found, next } = part(c, trustedCAs, (ca) => ca.subject ?? "", "ca");
          return [
            h("p", { class: "small" }, `${found} of ${trustedCAs.length}. The key server trusts certificates that these CAs issued.`),
            table("Trusted CAs", [
              { title: "Subject", cell: (ca) => ca.subject ?? "–" },
              { title: "Key", cell: (ca) => ca.publicKeyType ?? "–" },
              { title: "Expires in", cell: (ca) => until(ca.expirationDate, Date.now()) },
            ], shown, "There are no trusted CAs besides the internal CA."),
            pager(c, "trust", next, "ca"),
          ];
        }),
        panel("This key server", Promise.all([c.client.getLocalTrustInfo(options), c.client.listAuthorities(options).catch(() => undefined)]), ([info, own]) => [
          facts([
            ["Name", info.serverName], ["System id", info.systemId],
            ["Listener for peers", info.port === null ? "none" : `port ${info.port}`],
            ["Certificate", until(info.certificate.expirationDate, Date.now())],
            ...(own?.authorities ?? []).map((a): [string, (Node | string)[]] => [`Internal CA, ${a.state}`, [`${a.subject} `, until(a.notAfter, Date.now())]]),
          ]),
          h("p", null, h("a", { href: address("told") }, "Principal trusts: principals that peers may know")),
        ]),
        panel("Peers", c.client.listTrustedServers({}, options), ({ trustedServers }) => {
          const { shown, found, next } = part(c, trustedServers, (s) => `${nameOf(s)} ${s.serverName} ${s.description}`, "peer");
          return [
            h("p", { class: "small" }, `${found} of ${trustedServers.length}. A peer may use the rights that its principals have here.`),
            table("Peers", [
              { title: "Peer", cell: (s) => [h("strong", null, nameOf(s)), s.description ? h("span", { class: "small" }, ` ${s.description}`) : null] },
              { title: "System id", number: true, cell: (s) => s.systemId },
              { title: "Address", cell: (s) => `${s.serverName}:${s.port}` },
              { title: "Expires in", cell: (s) => until(s.certificate?.expirationDate, Date.now()) },
              { title: "Witness", cell: (s) => (s.witness ? badge("yes", "good") : "no") },
              { title: "", cell: (s) => h("a", { href: address("told", { peer: s.systemId }), "aria-label": `Principal trusts for ${nameOf(s)}` }, "Principal trusts") },
            ], shown, "There are no peers."),
            pager(c, "trust", next, "peer"),
          ];
        }),
      ]))),
    ];
  },
};

export const told: View = {
  name: "told",
  title: "Principal trusts",
  under: "trust",
  async render(c) {
    const peer = c.params.get("peer") ?? "";
    const offset = Number(c.params.get("offset") ?? 0);
    const answer = await c.client.listPrincipalTrusts({ limit: pageSize, offset, ...(peer === "" ? {} : { trustedServerSystemId: Number(peer) }) }, { signal: c.signal });
    const names = await resolve(c, answer.principalTrusts.map((p) => p.principalId));
    return [
      h("p", null, "A peer learns about a principal only if a row here exposes it to that peer. A row with restrict prevents the use of the principal there."),
      query("told", "Filter", [{ name: "peer", label: "System id of the peer", value: peer }]),
      table("Principal trusts", [
        { title: "Principal", cell: (p) => [names.get(p.principalId ?? "") ?? null, " ", code(p.principalId ?? "–")] },
        { title: "Peer", cell: (p) => p.trustedServerSystemId ?? "–" },
        { title: "Rule", cell: (p) => badge(p.flagLabel ?? "unknown", p.flagLabel === "expose" ? "good" : "warn") },
      ], answer.principalTrusts, "There are no principal trusts."),
      ...[pager(c, "told", answer.count === pageSize ? offset + pageSize : null, "offset")].filter((p) => p !== null),
    ];
  },
};

/** Returns the names of principals by id. It is empty if they cannot be read. */
export async function resolve(c: Context, ids: (string | null)[]): Promise<Map<string, string>> {
  const wanted = [...new Set(ids.filter((id): id is string => id !== null))];
  if (wanted.length === 0) {
    return new Map();
  }
  try {
    const { systemId } = c.me.principal;
    const found = await c.client.lookUpPrincipals({ principals: wanted.map((id) => ({ systemId, principalId: BigInt(`0x${id}`).toString() })) }, { signal: c.signal });
    return new Map(found.principals.map((p: Principal) => [p.id, p.name]));
  } catch {
    return new Map();
  }
}

