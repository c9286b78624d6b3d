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
      query("sessions", "Filter", [{ name: "principalId", label: "Principal", value: principalId, hint: `16 hexadecimal digits. Your own id is ${c.me.principal.id}` }]),
      table("Live sessions", [
        { title: "Principal", cell: (s) => [h("a", { href: address("sessions", { principalId: s.principal.id }) }, s.principal.name), s.id === c.me.id ? [" ", badge("this one", "plain")] : null].flat() },
        { title: "Kind", cell: (s) => s.kind },
        { title: "Bound to", cell: (s) => (s.boundKey !== null ? badge("a key", "good") : s.boundCertificate !== undefined ? badge("a certificate", "good") : badge("nothing", "warn")) },
        { title: "Address", cell: (s) => s.address || "–" },
        { title: "Opened", cell: (s) => time(s.createdAt) },
        { title: "Last used", cell: (s) => time(s.lastUsedAt) },
        { title: "Expires in", cell: (s) => until(s.expiresAt, Date.now(), 0) },
        { title: "Id", cell: (s) => h("a", { href: address("audit", { session: s.id }), title: "Audit rows of this session" }, code(s.id)) },
        { title: "", cell: (s) => act(c, "End", ["Sessions derived from it end too. Requests in progress finish."],
          async (client) => `Sessions ended: ${(await client.endSession({ id: s.id })).ended}.`, "danger", `End the session ${s.id} of ${s.principal.name}`) },
      ], page.sessions, "There are no live sessions that you may see."),
      ...(principalId === "" || one === undefined ? [] : [h("p", null, act(c, "End all of them", [`All sessions of ${one.principal.name} end.`],
        async (client) => `Sessions ended: ${(await client.endSessionsOfPrincipal({ id: principalId })).ended}.`))]),
      ...[pager(c, "sessions", page.next)].filter((p) => p !== null),
    ];
  },
};
