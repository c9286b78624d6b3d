// This program prints a MAC. It uses the types that openapi-typescript generates.
import createClient from "openapi-fetch";
import type { paths } from "./keyserver.js";

declare const process: { env: Record<string, string> };
const { KEYSERVER_URL: baseUrl, KEYSERVER_NAME: name, KEYSERVER_PASSWORD: password, KEYSERVER_LINEAGE: lineage } = process.env;

const client = createClient<paths>({ baseUrl: baseUrl! });
const login = await client.POST("/api/sessions", { body: { method: "password", name, password } });
if (!login.data) throw new Error(JSON.stringify(login.error));
const computed = await client.POST("/api/crypto/mac", {
  body: { lineage: lineage!, data: "aGVsbG8=" }, headers: { Authorization: `Bearer ${login.data.sessionId}` },
});
if (!computed.data) throw new Error(JSON.stringify(computed.error));
console.log(computed.data.mac);
