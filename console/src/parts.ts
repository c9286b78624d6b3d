import { codeOf, KeyserverError, type Routes } from "@keyserver-operator/client";
import { fill, h } from "./dom.js";
import { address, type Context } from "./view.js";

type Cell = Node | string | number | null | undefined;

export interface Column<Row> {
  title: string;
  cell: (row: Row) => Cell | Cell[];
  /** Aligns numbers right. */
  number?: boolean;
}

/** Returns a table, or the text none if there are no rows. On a narrow screen, each row is a card with labels. */
export function table<Row>(caption: string, columns: Column<Row>[], rows: Row[], none: string): HTMLElement {
  if (rows.length === 0) {
    return h("p", { class: "none" }, none);
  }
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, columns.map((c) => h("th", { scope: "col", class: c.number ? "number" : null }, c.title || h("span", { class: "hidden" }, "Actions"))))),
      h("tbody", null, rows.map((row) => h("tr", null, columns.map((c) =>
        h("td", { "data-label": c.title, class: c.number ? "number" : null }, h("span", null, c.cell(row))),
      )))),
    ));
}

/** Returns links to the first and the next page, or null if there is one page. The browser's back button goes back. */
export function pager(context: Context, view: string, next: string | number | null, by = "after"): HTMLElement | null {
  const now = Object.fromEntries(context.params);
  const first = { ...now, [by]: null };
  if (next === null && !context.params.has(by)) {
    return null;
  }
  return h("nav", { class: "pager", "aria-label": "Pages" },
    context.params.has(by) ? h("a", { href: address(view, first) }, "First page") : null,
    next === null ? h("span", null, "This is the last page.") : h("a", { href: address(view, { ...now, [by]: next }), rel: "next" }, "Next page"));
}

export type Tone = "good" | "bad" | "warn" | "plain";

export const badge = (text: string, tone: Tone): HTMLElement => h("span", { class: `badge ${tone}` }, text);

export const code = (text: string): HTMLElement => h("code", null, text);

/** Shows a time in the user's time zone. The attribute datetime and the tooltip have the exact time. */
export function time(text: string | null | undefined): Cell {
  const at = new Date(text ?? "");
  if (Number.isNaN(at.getTime())) {
    return text || "–";
  }
  return h("time", { datetime: at.toISOString(), title: text ?? "" }, new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" }).format(at));
}

const day = 86_400_000;

/** Shows the time until a given time. Warns if less than soon days remain; 0 means no warning. */
export function until(text: string | null | undefined, now: number, soon = 30): HTMLElement {
  const left = Date.parse(text ?? "") - now;
  if (Number.isNaN(left)) {
    return badge("unknown", "plain");
  }
  if (left <= 0) {
    return badge("expired", "bad");
  }
  const days = Math.floor(left / day);
  const words = days >= 1 ? `${days} ${days === 1 ? "day" : "days"}` : left >= 3_600_000 ? `${Math.floor(left / 3_600_000)} h` : `${Math.ceil(left / 60_000)} min`;
  return badge(words, soon === 0 ? "plain" : days < soon ? "warn" : "good");
}

/** Shows an error with the message of the service. */
export function failure(error: unknown): HTMLElement {
  if (error instanceof KeyserverError) {
    const denied = error.code === "ACCESS_DENIED";
    return h("div", { class: `notice ${denied ? "plain" : "bad"}`, role: "alert" },
      h("p", null, denied ? "Your roles do not allow this. " : null, error.detail),
      h("p", { class: "small" }, code(error.code || `HTTP ${error.status}`), error.requestId ? [" request ", code(error.requestId)] : null));
  }
  return h("div", { class: "notice bad", role: "alert" }, h("p", null, error instanceof Error ? error.message : String(error)));
}

/** Returns a section of a page. If its request fails, only this section shows the error. */
export async function panel<T>(title: string, asked: Promise<T>, show: (answer: T) => (Cell | null)[]): Promise<HTMLElement> {
  const section = h("section", { class: "panel" }, h("h2", null, title));
  try {
    section.append(...show(await asked).filter((part) => part !== null && part !== undefined).map((part) => (part instanceof Node ? part : String(part))));
  } catch (error) {
    section.append(failure(error));
  }
  return section;
}

/** Shows a list of names and values. */
export function facts(list: [string, Cell | Cell[]][]): HTMLElement {
  return h("dl", null, list.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value ?? "–"))));
}

export interface Field {
  name: string;
  label: string;
  value?: string | null;
  type?: string;
  options?: readonly (readonly [string, string])[];
  hint?: string;
  required?: boolean;
  autocomplete?: string;
}

let fields = 0;

export function field(f: Field): HTMLElement {
  const id = `field-${++fields}`;
  const hint = f.hint === undefined ? null : h("span", { class: "hint", id: `${id}-hint` }, f.hint);
  const common = { id, name: f.name, required: f.required ?? false, "aria-describedby": hint === null ? null : `${id}-hint` };
  const input = f.options !== undefined
    ? h("select", common, f.options.map(([value, text]) => h("option", { value, selected: value === (f.value ?? "") }, text)))
    : h("input", { ...common, type: f.type ?? "text", value: f.value ?? "", autocomplete: f.autocomplete ?? "off", spellcheck: "false" });
  return h("div", { class: "field" }, h("label", { for: id }, f.label), input, hint);
}

/** Returns a form that puts its fields into the address of a view. */
export function query(view: string, label: string, list: Field[]): HTMLElement {
  return h("form", {
    class: "query", role: "search", "aria-label": label,
    submit: (event: SubmitEvent) => {
      event.preventDefault();
      const values = Object.fromEntries([...new FormData(event.currentTarget as HTMLFormElement)].map(([k, v]) => [k, String(v).trim()]));
      const next = address(view, values);
      if (location.hash === next) {
        dispatchEvent(new HashChangeEvent("hashchange"));
      } else {
        location.hash = next;
      }
    },
  }, list.map(field), h("button", { class: "primary" }, label));
}

/** Makes calls with the given client. Returns a message about the result. */
type Work = (client: Routes) => Promise<string>;

/**
 * Returns a button that asks for confirmation, does the work and shows the result. If the approval
 * policy guards the work, the user can request an approval instead.
 */
export function act(context: Context, label: string, question: (Cell | null)[], work: Work, tone: "danger" | "primary" = "danger", name?: string): HTMLElement {
  return h("button", { type: "button", class: tone === "danger" ? "danger" : "", "aria-label": name ?? null, click: () => ask(context, name ?? label, label, question, work, tone) }, label);
}

function ask(context: Context, title: string, label: string, question: (Cell | null)[], work: Work, tone: "danger" | "primary"): void {
  const problem = h("div", { "aria-live": "polite" });
  const go = h("button", { class: tone, autofocus: false }, label);
  const why = field({ name: "reason", label: "Reason, for the approvers", required: true });
  let guarded = false;
  const dialog: HTMLDialogElement = h("dialog", { "aria-labelledby": "question", close: () => { dialog.remove(); } },
    h("form", {
      method: "dialog",
      submit: async (event: SubmitEvent) => {
        event.preventDefault();
        const reason = String(new FormData(event.currentTarget as HTMLFormElement).get("reason") ?? "").trim();
        go.disabled = true;
        try {
          if (guarded) {
            const { approvalId } = await context.client.askFor(reason, work);
            dialog.close();
            location.hash = address("approval", { id: approvalId });
            return;
          }
          fill(problem);
          const said = await work(context.client);
          dialog.close();
          context.say(said);
          context.reload();
        } catch (error) {
          go.disabled = false;
          guarded ||= codeOf(error) === "APPROVAL_REQUIRED";
          fill(problem, failure(error), guarded ? why : null);
          if (guarded) {
            fill(go, "Request approval");
            why.querySelector("input")?.focus();
          }
        }
      },
    },
    h("h2", { id: "question" }, `${title}?`),
    question.map((part) => (part instanceof Node ? part : part === null || part === undefined ? null : h("p", null, part))),
    problem,
    h("div", { class: "buttons" }, h("button", { type: "button", autofocus: true, click: () => dialog.close() }, "Cancel"), go)));
  document.body.append(dialog);
  dialog.showModal();
}

/** Converts a decimal id of the audit log to 16 hexadecimal digits. */
export const hexId = (decimal: string): string => BigInt(decimal).toString(16).padStart(16, "0");
