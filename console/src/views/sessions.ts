import { h } from "../dom.js";
import { act, badge, code, pager, query, table, time, until } from "../parts.js";
import { address, type View } from "../view.js";

export const sessions: View = {
  name: "sessions",
  title: "Sessions",
  async render(c) {
    const principalId = c.params.get("principalId") ?? "";
    const after = c.params.get("after");
    const page = await c.client.listSessions({ limit: 50, ...(principalId === "" ? {} : { principalId }), ...(after === null ? {} : { after }) }, { signal: c.signal });
    const one = page.sessions[0];
    return [
      query("sessions", "Filter", [{ name: "principalId", label: "Principal", value: principalId, hint: `16 hexadecimal digits; your own are of ${c.me.principal.id}` }]),
      table("Live sessions", [
        { title: "Principal", cell: (s) => [h("a", { href: address("sessions", { principalId: s.principal.id }) }, s.principal.name), s.id === c.me.id ? [" ", badge("this one", "plain")] : null].flat() },
        { title: "Kind", cell: (s) => s.kind },
        { title: "Bound to", cell: (s) => (s.boundKey !== null ? badge("a key", "good") : s.boundCertificate !== undefined ? badge("a certificate", "good") : badge("nothing", "warn")) },
        { title: "From", cell: (s) => s.address || "–" },
        { title: "Opened", cell: (s) => time(s.createdAt) },
        { title: "Used", cell: (s) => time(s.lastUsedAt) },
        { title: "Ends in", cell: (s) => until(s.expiresAt, Date.now(), 0) },
        { title: "Id", cell: (s) => h("a", { href: address("audit", { session: s.id }), title: "What was done in it" }, code(s.id)) },
        { title: "", cell: (s) => act(c, "End", ["Those made from it end as well. What they have under way is finished."],
          async (client) => `${(await client.endSession({ id: s.id })).ended} sessions ended.`, "danger", `End the session ${s.id} of ${s.principal.name}`) },
      ], page.sessions, "There is no live session that you may see."),
      ...(principalId === "" || one === undefined ? [] : [h("p", null, act(c, "End all of them", [`Every session of ${one.principal.name} ends.`],
        async (client) => `${(await client.endSessionsOfPrincipal({ id: principalId })).ended} sessions ended.`))]),
      ...[pager(c, "sessions", page.next)].filter((p) => p !== null),
    ];
  },
};
