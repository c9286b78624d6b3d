import type { LoginRequest } from "@keyserver-operator/client";
import { fill, h } from "../dom.js";
import { failure, field } from "../parts.js";

/** Returns the login form. */
export function login(enter: (request: LoginRequest) => Promise<void>): HTMLElement {
  const problem = h("div", { "aria-live": "polite" });
  const attempt = async (request: LoginRequest, form: HTMLElement) => {
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((b) => (b.disabled = true));
    fill(problem);
    try {
      await enter(request);
    } catch (error) {
      fill(problem, failure(error));
    }
    buttons.forEach((b) => (b.disabled = false));
  };
  const form = h("form", {
    class: "panel login",
    submit: (event: SubmitEvent) => {
      event.preventDefault();
      const data = new FormData(form);
      void attempt({ method: data.get("method") as "password" | "ldap", name: String(data.get("name")), password: String(data.get("password")) }, form);
    },
  },
  field({ name: "method", label: "Account", options: [["password", "Account of this key server"], ["ldap", "Account of the directory (LDAP)"]], value: "password" }),
  field({ name: "name", label: "Name", required: true, autocomplete: "username" }),
  field({ name: "password", label: "Password", type: "password", required: true, autocomplete: "current-password" }),
  problem,
  h("div", { class: "buttons" },
    h("button", { type: "button", click: () => void attempt({ method: "certificate" }, form) }, "Use the certificate of this connection"),
    h("button", { class: "primary" }, "Log in")),
  h("p", { class: "small" }, "The session is bound to a key that this browser generates and never reveals. A stolen session id is useless without that key."));
  return form;
}
