// This program prints a MAC. It uses the client that @hey-api/openapi-ts generates.
import { client } from "./keyserver/client.gen.js";
import { computeMac, login } from "./keyserver/index.js";

declare const process: { env: Record<string, string> };
const { KEYSERVER_URL: baseUrl, KEYSERVER_NAME: name, KEYSERVER_PASSWORD: password, KEYSERVER_LINEAGE: lineage } = process.env;

client.setConfig({ baseUrl: baseUrl! });
const session = await login({ body: { method: "password", name, password }, throwOnError: true });
const computed = await computeMac({ body: { lineage: lineage!, data: "aGVsbG8=" }, auth: session.data.sessionId, throwOnError: true });
console.log(computed.data.mac);
