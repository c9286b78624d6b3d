type Child = Node | string | number | null | undefined | false | Child[];
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => unknown)>;

/**
 * Creates an element. Strings become text and never HTML, which the content security policy of the
 * page would also block.
 */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes | null, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") {
      element.addEventListener(name, value as EventListener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  append(element, children);
  return element;
}

function append(to: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) {
      append(to, child);
    } else if (child instanceof Node) {
      to.append(child);
    } else if (child !== null && child !== undefined && child !== false) {
      to.append(String(child));
    }
  }
}

/** Replaces the children of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}
