import { Client, KeyserverError, ProofKey, type HeldSession, type LoginRequest, type Session } from "@keyserver-operator/client";
import "./style.css";
import { fill, h } from "./dom.js";
import { failure } from "./parts.js";
import { forget, load, save } from "./store.js";
import { address, type Context, type View } from "./view.js";
import { approval, approvals } from "./views/approvals.js";
import { audit, row } from "./views/audit.js";
import { keys } from "./views/keys.js";
import { login } from "./views/login.js";
import { overview } from "./views/overview.js";
import { sessions } from "./views/sessions.js";
import { told, trust } from "./views/trust.js";
import { who, why } from "./views/why.js";

const views: View[] = [overview, trust, told, why, who, audit, row, sessions, approvals, approval, keys];

/** Who is logged in, and how he speaks to the service. */
interface Self {
  client: Client;
  me: Session;
}

const main = h("main", { id: "main" });
const status = h("p", { role: "status", class: "status" });
const top = h("header", null);
let self: Self | undefined;
let leaving = new AbortController();

document.body.append(
  h("a", { class: "skip", href: "#main", click: (event: Event) => { event.preventDefault(); begin(); } }, "Skip to the content"),
  top, main, status,
);

/** A client whose sessions are kept with their key, until one of them ends. */
function speak(key: ProofKey, session?: HeldSession): Client {
  return new Client({
    baseUrl: location.origin,
    proofKey: key,
    ...(session === undefined ? {} : { session }),
    onSession: (held) => {
      if (held !== undefined) {
        void save({ session: held, pair: key.pair });
      } else if (self !== undefined) {
        void leave("The session has ended. Log in again.");
      }
    },
  });
}

async function enter(request: LoginRequest): Promise<void> {
  const client = speak(await ProofKey.generate());
  await client.login(request);
  self = { client, me: await client.getCurrentSession() };
  say("");
  await show();
}

async function leave(words: string): Promise<void> {
  const client = self?.client;
  self = undefined;
  await Promise.allSettled([client?.logout(), forget()]);
  await show();
  say(words);
}

function say(words: string): void {
  status.textContent = words;
}

function place(): { view: View; params: URLSearchParams } {
  const [name, query] = location.hash.replace(/^#\//, "").split("?");
  return { view: views.find((v) => v.name === name) ?? overview, params: new URLSearchParams(query) };
}

function navigation(current: View): void {
  if (self === undefined) {
    fill(top, h("p", { class: "brand" }, "Key server"));
    return;
  }
  const { me } = self;
  fill(top,
    h("p", { class: "brand" }, "Key server"),
    h("nav", { "aria-label": "Views" }, h("ul", null, views.filter((v) => v.under === undefined).map((v) =>
      h("li", null, h("a", { href: address(v.name), "aria-current": (current.under ?? current.name) === v.name ? "page" : null }, v.title))))),
    h("div", { class: "self" },
      h("span", { title: me.roles.map((r) => r.name).join(", ") }, me.principal.name),
      h("button", { type: "button", click: () => void leave("You are logged out.") }, "Log out")));
}

/** Shows what the address says. */
async function show(): Promise<void> {
  leaving.abort();
  leaving = new AbortController();
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  const { signal } = leaving;
  const { view, params } = place();
  const title = self === undefined ? "Log in" : view.title;
  const heading = h("h1", { tabindex: -1 }, title);
  document.title = `${title} – key server`;
  navigation(view);
  if (self === undefined) {
    fill(main, heading, login(enter));
    return;
  }
  fill(main, heading, h("p", { class: "none" }, "Loading …")); // nothing of the view before stands under this name
  main.setAttribute("aria-busy", "true");
  const context: Context = { ...self, params, signal, reload: () => void show().then(begin), say };
  let content: Node[];
  try {
    content = await view.render(context);
  } catch (error) {
    if (signal.aborted || (error instanceof KeyserverError && error.reauth)) {
      return; // somebody else has the page by now
    }
    content = [failure(error)];
  }
  if (!signal.aborted) {
    fill(main, heading, content);
    main.removeAttribute("aria-busy");
    main.dataset["view"] = location.hash; // for tests: what is shown is of this address
  }
}

addEventListener("hashchange", () => {
  say("");
  void show().then(begin);
});

/** Whoever uses the keyboard or hears the page begins at its top. */
function begin(): void {
  main.querySelector<HTMLElement>("h1")?.focus();
}

const kept = await load();
if (kept !== undefined) {
  try {
    const client = speak(ProofKey.of(kept.pair), { ...kept.session, used: Date.now() });
    self = { client, me: await client.getCurrentSession() };
  } catch (error) {
    if (error instanceof KeyserverError && error.reauth) {
      await forget();
    } else {
      fill(main, failure(error));
    }
  }
}
await show();
