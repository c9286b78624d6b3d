import { KeyserverError, type AuditPage, type Ready } from "@keyserver-operator/client";
import { h } from "../dom.js";
import { badge, panel, table, time, until } from "../parts.js";
import { address, type Context, type View } from "../view.js";
import { rows } from "./audit.js";

/** Returns the readiness. NOT_READY is a result and not an error. */
async function readiness(c: Context): Promise<Ready> {
  try {
    return await c.client.getReadiness({ signal: c.signal });
  } catch (error) {
    if (error instanceof KeyserverError && error.code === "NOT_READY") {
      return error.answer as Ready;
    }
    throw error;
  }
}

interface Ending {
  what: string;
  name: string;
  at: string;
  href: string;
}

/** Maximum number of rows in a table. */
const most = 10;

/** Returns certificates and CAs by expiry time, the earliest first. hidden names sources that the user may not read. */
async function endings(c: Context): Promise<{ list: Ending[]; hidden: string[] }> {
  const options = { signal: c.signal };
  const sources: [string, Promise<Ending[]>][] = [
    ["the internal CAs", c.client.listAuthorities(options).then((a) => a.authorities.map((one) =>
      ({ what: `Internal CA, ${one.state}`, name: one.subject, at: one.notAfter, href: address("trust") })))],
    ["the server certificate", c.client.getLocalTrustInfo(options).then((i) =>
      [{ what: "Server certificate", name: i.certificate.subject ?? i.serverName, at: i.certificate.expirationDate ?? "", href: address("trust") }])],
    ["trusted CAs", c.client.listTrustedCas({}, options).then((l) => l.trustedCAs.map((ca) =>
      ({ what: "Trusted CA", name: ca.subject ?? "", at: ca.expirationDate ?? "", href: address("trust") })))],
    ["peers", c.client.listTrustedServers({}, options).then((l) => l.trustedServers.map((s) =>
      ({ what: "Peer", name: s.friendlyName || s.serverName || "", at: s.certificate?.expirationDate ?? "", href: address("trust") })))],
  ];
  const hidden: string[] = [];
  // Wait for all requests together. Otherwise one could fail unhandled while another one is awaited.
  const answers = await Promise.all(sources.map(async ([what, asked]) => {
    try {
      return await asked;
    } catch (error) {
      if (!(error instanceof KeyserverError) || error.code !== "ACCESS_DENIED") {
        throw error;
      }
      hidden.push(what);
      return [];
    }
  }));
  const list = answers.flat();
  list.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  return { list, hidden };
}

export const overview: View = {
  name: "overview",
  title: "Overview",
  async render(c) {
    const refused: Promise<AuditPage> = c.client.listAuditEntries({ outcome: "refused", order: "desc", limit: most }, { signal: c.signal });
    return Promise.all([
      panel("Readiness", readiness(c), (r) => [
        h("p", { class: "large" }, r.ready ? badge("Ready", "good") : badge("Not ready", "bad"), " ", r.detail),
        ...r.warnings.map((w) => h("p", { class: "notice warn" }, w)),
        h("ul", { class: "parts" }, r.parts.map((p) => h("li", null,
          badge(p.ready ? "ready" : "not ready", p.ready ? "good" : "bad"), " ", h("strong", null, p.part), " ", p.detail,
          p.retryInSeconds === undefined ? null : ` Next check in ${p.retryInSeconds} s.`))),
      ]),
      panel("Next expiries", endings(c), ({ list, hidden }) => [
        table("Next expiries, the soonest first", [
          { title: "In", cell: (e) => until(e.at, Date.now()) },
          { title: "What", cell: (e) => e.what },
          { title: "Name", cell: (e) => h("a", { href: e.href }, e.name || "–") },
          { title: "At", cell: (e) => time(e.at) },
        ], list.slice(0, most), "There are no expiry dates that you may see."),
        list.length > most ? h("p", { class: "small" }, `${list.length - most} more expire later.`) : null,
        hidden.length > 0 ? h("p", { class: "small" }, `Your roles do not show ${hidden.join(", ")}.`) : null,
      ]),
      panel("Refused requests", refused, (page) => [
        rows("The newest refused requests", page.entries, "There are no refused requests."),
        page.next === null ? null : h("p", null, h("a", { href: address("audit", { outcome: "refused" }) }, "All refused requests")),
      ]),
    ]);
  },
};
