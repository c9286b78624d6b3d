/** One route of the HTTP API. Most routes are generated from the server's table of routes. */
export interface Route {
  /** operationId in the OpenAPI description. */
  name: string;
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** Path with the names of its fields in braces. */
  path: string;
  /** Fields that are sent in the query. */
  query?: readonly string[];
  /** The route has a body. It contains the fields that are in neither the path nor the query. */
  body?: boolean;
  /** The field at the end of the path, if it may contain slashes. */
  rest?: string;
  /** The route needs no session. */
  open?: boolean;
  /** The call may count a use of a key, so that a repeated call may count two uses. */
  counts?: boolean;
  /** The response may take as many seconds as the field wait says. */
  waits?: boolean;
  /** Format of a successful response. The default is JSON. */
  answers?: "text" | "bytes" | "stream";
  /** Member of the response to a verified write. It is true if the server has read the change back. */
  proves?: "saved" | "gone";
}

/** Options of one call. */
export interface CallOptions {
  /** Aborts the call. */
  signal?: AbortSignal;
  /** Purpose of the call for the audit log, at most 256 printable characters. */
  purpose?: string;
}
