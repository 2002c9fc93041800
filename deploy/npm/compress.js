// node compress.js FILE...: makes each script FILE smaller, and FILE.br from it with Brotli. That takes seconds, so it is done at
// set-up and not when a server starts.
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliCompressSync } = require("node:zlib");
const { minify } = require("terser");

async function main(files) {
  for (const file of files) {
    const { code } = await minify(readFileSync(file, "utf8"), { format: { comments: /licen[cs]e/i } });
    writeFileSync(file, code);
    writeFileSync(`${file}.br`, brotliCompressSync(code));
  }
}

main(process.argv.slice(2));
