import { Client, KeyserverError, ProofKey, type HeldSession, type LoginRequest, type Session } from "@keyserver-operator/client";
import "./style.css";
import { fill, h } from "./dom.js";
import { failure, time } from "./parts.js";
import { forget, type Kept, load, save } from "./store.js";
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

/** Session of this browser, with its client. */
interface Held {
  client: Client;
  session: HeldSession;
  name: string;
}

/** Session of the user who is logged in. */
interface Self extends Held {
  me: Session;
}

/** Message between tabs. With a name, that user has logged in; without a name, the session has ended. */
interface Told {
  id: string;
  name?: string;
}

const main = h("main", { id: "main" });
const status = h("p", { role: "status", class: "status" });
/** Notices that the user has to read. They stay until the next login. */
const notices = h("div", { class: "notices", "aria-live": "polite" });
const top = h("header", null);
/** Channel between tabs. A browser keeps one session, and no tab shows data of another session. */
const tabs = new BroadcastChannel("keyserver-console");
let self: Self | undefined;
let leaving = new AbortController();
/** Number of the newest login, logout or resume. Older operations must no longer change the page. */
let turn = 0;

document.body.append(
  h("a", { class: "skip", href: "#main", click: (event: Event) => { event.preventDefault(); begin(); } }, "Skip to the content"),
  top, notices, main, status,
);

function speak(key: ProofKey, onSession: (session: HeldSession | undefined) => void, session?: HeldSession): Client {
  return new Client({ baseUrl: location.origin, proofKey: key, onSession, ...(session === undefined ? {} : { session }) });
}

/** Returns the client of a stored session. Older releases stored sessions without a name. */
function revive({ session, pair, name = "an unknown user" }: Kept): Held {
  const used = { ...session, used: Date.now() };
  const client: Client = speak(ProofKey.of(pair), () => ended(client), used);
  return { client, session: used, name };
}

async function enter(request: LoginRequest): Promise<void> {
  const mine = ++turn;
  const key = await ProofKey.generate();
  const opened: { session?: HeldSession } = {};
  const client: Client = speak(key, (session) => (session === undefined ? ended(client) : (opened.session = session)));
  const me = await client.login(request);
  const entered: Self = { client, session: opened.session!, name: me.principal.name, me };
  if (mine !== turn) {
    await end(entered);
    return;
  }
  const saved = await save({ session: entered.session, pair: key.pair, name: entered.name });
  if (saved !== undefined) {
    tell({ id: entered.session.id, name: entered.name });
  }
  // End the replaced session now, because its key is no longer stored.
  const replaced = saved?.replaced;
  await Promise.all([begun(entered), replaced === undefined ? undefined : end(revive(replaced))]);
}

/** Resumes the session that this browser keeps, if there is one. */
async function resume(): Promise<void> {
  const mine = ++turn;
  const kept = await load();
  if (mine !== turn) {
    return;
  }
  if (kept === undefined) {
    fill(notices);
    outside(login(enter));
    return;
  }
  const held = revive(kept);
  const wait = (problem?: HTMLElement) => outside(h("div", { class: "panel login" },
    h("p", null, h("strong", null, held.name), " is logged in in this browser."),
    problem ?? h("p", { class: "none" }, "Waiting for the server …"),
    h("div", { class: "buttons" },
      h("button", { type: "button", click: () => void leave(held) }, "Forget the session here"),
      problem === undefined ? null : h("button", { type: "button", class: "primary", click: () => void resume() }, "Try again"))));
  wait();
  try {
    const me = await held.client.getCurrentSession();
    const still = (await load())?.session.id === held.session.id; // another tab may have replaced the session
    if (mine === turn) {
      await (still ? begun({ ...held, me }) : resume());
    }
  } catch (error) {
    if (mine !== turn) {
      return;
    }
    if (error instanceof KeyserverError && error.reauth) {
      over(held);
    } else {
      wait(failure(error));
    }
  }
}

async function begun(next: Self): Promise<void> {
  self = next;
  fill(notices);
  say("");
  await show();
}

/** Handles the end of a client's session. */
function ended(client: Client): void {
  if (self?.client === client) {
    over(self);
  }
}

function over(held: Held): void {
  outside(login(enter));
  say("The session has ended. Log in again.");
  void drop(held);
}

/** Logs out. It clears the page and forgets the key before it waits for the server. */
async function leave(held: Held): Promise<void> {
  const mine = ++turn;
  outside(login(enter));
  say("You are logged out in this browser. Waiting for the server …");
  await drop(held);
  const done = await end(held);
  if (mine === turn) {
    say(done ? "You are logged out." : "");
  }
}

/** Forgets a session, in all tabs. */
async function drop({ session }: Held): Promise<void> {
  await forget(session.id);
  tell({ id: session.id });
}

/** Ends a session on the server. If the server does not confirm this, a notice shows when the session expires. */
async function end({ client, session, name }: Held): Promise<boolean> {
  try {
    await client.logout();
    return true;
  } catch (error) {
    const last = Math.min(session.until, Date.now() + session.idle) + 30_000; // the largest margin that the client has subtracted
    const notice = failure(error);
    notice.prepend(h("p", null, `The server did not confirm that the session of ${name} has ended. The session may continue there until `, time(new Date(last).toISOString()),
      ". This browser has deleted the key of the session. The session cannot be used without it."));
    notices.append(notice);
    return false;
  }
}

function tell(told: Told): void {
  tabs.postMessage(told);
}

tabs.onmessage = ({ data: { id, name } }: MessageEvent<Told>) => {
  if (name === undefined ? id !== self?.session.id : id === self?.session.id) {
    return;
  }
  if (self !== undefined) {
    outside(login(enter));
  }
  notices.querySelector(".tab")?.remove();
  notices.append(h("div", { class: "notice warn tab", role: "alert" }, name === undefined
    ? h("p", null, "The session has ended in another tab.")
    : [h("p", null, h("strong", null, name), " has logged in in another tab. This browser keeps one session."),
      h("button", { type: "button", click: () => void resume() }, `Continue as ${name}`)]));
};

function say(words: string): void {
  status.textContent = words;
}

function place(): { view: View; params: URLSearchParams } {
  const [name, query] = location.hash.replace(/^#\//, "").split("?");
  return { view: views.find((v) => v.name === name) ?? overview, params: new URLSearchParams(query) };
}

function navigation(current: View, held: Self): void {
  const { me } = held;
  fill(top,
    h("p", { class: "brand" }, "Key server"),
    h("nav", { "aria-label": "Views" }, h("ul", null, views.filter((v) => v.under === undefined).map((v) =>
      h("li", null, h("a", { href: address(v.name), "aria-current": (current.under ?? current.name) === v.name ? "page" : null }, v.title))))),
    h("div", { class: "self" },
      h("span", { title: me.roles.map((r) => r.name).join(", ") }, me.principal.name),
      h("button", { type: "button", click: () => void leave(held) }, "Log out")));
}

/** Clears the page and aborts its requests. Returns the heading of the new page. */
function clear(title: string): HTMLElement {
  leaving.abort();
  leaving = new AbortController();
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  document.title = `${title} – key server`;
  const heading = h("h1", { tabindex: -1 }, title);
  fill(main, heading);
  delete main.dataset["view"];
  return heading;
}

/** Shows the page for a user who is not logged in. */
function outside(content: HTMLElement): void {
  self = undefined;
  clear("Log in");
  fill(top, h("p", { class: "brand" }, "Key server"));
  main.append(content);
  main.removeAttribute("aria-busy");
}

/** Shows the view of the address, if a user is logged in. */
async function show(): Promise<void> {
  if (self === undefined) {
    return;
  }
  const { view, params } = place();
  const heading = clear(view.title);
  const { signal } = leaving;
  navigation(view, self);
  main.setAttribute("aria-busy", "true");
  main.append(h("p", { class: "none" }, "Loading …"));
  const context: Context = { client: self.client, me: self.me, params, signal, reload: () => void show().then(begin), say };
  let content: Node[];
  try {
    content = await view.render(context);
  } catch (error) {
    if (signal.aborted || (error instanceof KeyserverError && error.reauth)) {
      return; // the page shows another view or the login by now
    }
    content = [failure(error)];
  }
  if (!signal.aborted) {
    fill(main, heading, content);
    main.removeAttribute("aria-busy");
    main.dataset["view"] = location.hash; // for tests: the address of the view that is shown
  }
}

addEventListener("hashchange", () => {
  if (self === undefined) {
    return; // the login form keeps its input
  }
  say("");
  fill(notices);
  void show().then(begin);
});

/** Moves the focus to the heading, for users of keyboards and screen readers. */
function begin(): void {
  main.querySelector<HTMLElement>("h1")?.focus();
}

await resume();
