import type { Client, Session } from "@keyserver-operator/client";

/** Input of a view. */
export interface Context {
  client: Client;
  me: Session;
  /** Parameters of the address. They determine the view, so that users can share its address. */
  params: URLSearchParams;
  /** Aborted when the user leaves the view. */
  signal: AbortSignal;
  /** Shows the view again after a change. */
  reload: () => void;
  /** Shows the result of an action to the user. */
  say: (text: string) => void;
}

export interface View {
  /** Name in the address. */
  name: string;
  title: string;
  /** Name of the view that the navigation shows instead of this one. */
  under?: string;
  render: (context: Context) => Promise<Node[]>;
}

export function address(view: string, params: Record<string, string | number | null | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") {
      query.set(name, String(value));
    }
  }
  return `#/${view}${query.size > 0 ? `?${query}` : ""}`;
}
