import type { Client, Session } from "@keyserver-operator/client";

/** What a view is given. */
export interface Context {
  client: Client;
  me: Session;
  /** Of the address: a view is what its address says, so that it can be sent to somebody. */
  params: URLSearchParams;
  /** Ends when the view is left. */
  signal: AbortSignal;
  /** Shows the view anew, after something was changed. */
  reload: () => void;
  /** Tells people what was done. */
  say: (text: string) => void;
}

export interface View {
  /** In the address, and in the navigation where it has a title there. */
  name: string;
  title: string;
  /** Views that belong to another one in the navigation. */
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
