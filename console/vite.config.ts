import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  base: "/console/",
  resolve: {
    alias: { "@keyserver-operator/client": fileURLToPath(new URL("../clients/typescript/src/index.ts", import.meta.url)) },
  },
  build: {
    outDir: process.env["CONSOLE_OUT"] ?? "dist",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // data: URLs are against the policy
    modulePreload: { polyfill: false }, // every browser that has Ed25519 knows it
    reportCompressedSize: false,
  },
});
