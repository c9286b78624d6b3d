export { Client, type ClientOptions } from "./client.js";
export type { CallOptions } from "./call.js";
export { codeOf, KeyserverError, NetworkError, type Refusal } from "./errors.js";
export { fromBase64, toBase64 } from "./encoding.js";
export type { Message } from "./message.js";
export { ProofKey } from "./proof.js";
export { verifyReceipt, type Verified } from "./receipt.js";
export { certificate, type Credentials, type HeldSession, ldap, password, serviceAccount } from "./session.js";
export type * from "./routes.js";
