import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** A hash of all sources: the same sources give the same build, and a page can tell that a newer one is served. */
function buildId(): string {
  const hash = createHash("sha256");
  const files = readdirSync("src", { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const path of files.map((entry) => join(entry.parentPath, entry.name)).sort()) hash.update(readFileSync(path));
  hash.update(readFileSync("package-lock.json"));
  return hash.digest("hex").slice(0, 12);
}

const build = buildId();

/** Writes the id of the build to a file that open pages read again from time to time. */
function versionFile(): Plugin {
  return {
    name: "version-file",
    generateBundle() {
      this.emitFile({ type: "asset", fileName: "version.json", source: JSON.stringify({ build }) });
    },
  };
}

export default defineConfig({
  base: "/console/",
  plugins: [react(), versionFile()],
  define: { __BUILD__: JSON.stringify(build) },
  // No data: URLs and no inline scripts: the content security policy forbids both.
  build: { outDir: "../static", emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
});
