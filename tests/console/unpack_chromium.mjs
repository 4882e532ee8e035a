// Unpacks the browser of the npm package @sparticuz/chromium: node unpack_chromium.mjs FROM TO
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";

const [from, to] = process.argv.slice(2);
mkdirSync(to, { recursive: true });
const unpacked = (name) => brotliDecompressSync(readFileSync(join(from, name)));

for (const archive of ["al2023", "fonts", "swiftshader"]) {
  const path = join(to, `${archive}.tar`);
  writeFileSync(path, unpacked(`${archive}.tar.br`));
  execFileSync("tar", ["-xf", path, "-C", to]);
}
writeFileSync(join(to, "chromium"), unpacked("chromium.br"));
chmodSync(join(to, "chromium"), 0o755);
writeFileSync(
  join(to, "fonts.conf"),
  `<?xml version="1.0"?><fontconfig><dir>${to}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>${to}/font-cache</cachedir></fontconfig>`,
);
