/** What is known of a route, made from the server's table of routes. */
export interface Route {
  /** Its operationId. */
  name: string;
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** With the names of its fields in braces. */
  path: string;
  /** The fields that go into the query. */
  query?: readonly string[];
  /** What goes neither into the path nor into the query is the body. */
  body?: boolean;
  /** The field at the end of the path that may have slashes. */
  rest?: string;
  /** It needs no session. */
  open?: boolean;
  /** The call may count a use of a key, so that asking twice may count twice. */
  counts?: boolean;
  /** The answer may take as long as the field wait says, in seconds. */
  waits?: boolean;
  /** What a success is, JSON where nothing is said. */
  answers?: "text" | "bytes" | "stream";
  /** The member of a verified write's answer that says that it was read back. */
  proves?: "saved" | "gone";
}

/** Of one call. */
export interface CallOptions {
  /** Ends the call early. */
  signal?: AbortSignal;
  /** What the call is for, up to 256 printable characters: audit rows have it. */
  purpose?: string;
}
