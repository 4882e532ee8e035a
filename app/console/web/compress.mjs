// Writes .br and .gz beside each built file where they are smaller, then touches the index: the server reads a new
// build when the index has changed.
import { readFileSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const FOLDER = join(import.meta.dirname, "..", "static");
const TYPES = /\.(css|html|js|json|svg)$/;
const encoders = {
  ".br": (content) => brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
  ".gz": (content) => gzipSync(content, { level: 9 }),
};

for (const entry of readdirSync(FOLDER, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !TYPES.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const content = readFileSync(path);
  for (const [suffix, encode] of Object.entries(encoders)) {
    const encoded = encode(content);
    if (encoded.length < content.length) writeFileSync(path + suffix, encoded);
  }
}
const now = new Date();
utimesSync(join(FOLDER, "index.html"), now, now);
