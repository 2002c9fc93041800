// node compress.js [--quick] FILE...: makes each script FILE smaller, and FILE.br from it with Brotli. That takes half a minute of
// the processor, so it is done at set-up and not when a server starts. --quick does not make FILE smaller, and FILE.br is a sixth larger.
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliCompressSync, constants } = require("node:zlib");
const { minify } = require("terser");

// Chromium then compiles all functions in another thread while the file comes, and not one by one in the page's own when they are
// first called, which takes twice as long and is what a first opening of charts would wait for.
const EAGER = "//# allFunctionsCalledOnLoad\n";

async function main(args) {
  const isQuick = args.includes("--quick");
  const params = isQuick ? { [constants.BROTLI_PARAM_QUALITY]: 6 } : {};
  for (const file of args.filter((arg) => arg !== "--quick")) {
    const source = readFileSync(file, "utf8");
    const code = EAGER + (isQuick ? source : (await minify(source, { format: { comments: /licen[cs]e/i } })).code);
    writeFileSync(file, code);
    writeFileSync(`${file}.br`, brotliCompressSync(code, { params }));
  }
}

main(process.argv.slice(2));
