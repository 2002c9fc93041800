// node compress.js [--quick] FILE...: makes each script FILE smaller, and FILE.br from it with Brotli. That takes half a minute of
// the processor, so it is done at set-up and not when a server starts. --quick leaves FILE as it is, and FILE.br is a sixth larger.
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliCompressSync, constants } = require("node:zlib");
const { minify } = require("terser");

async function main(args) {
  const files = args.filter((arg) => arg !== "--quick");
  if (files.length < args.length) {
    const params = { [constants.BROTLI_PARAM_QUALITY]: 6 };
    for (const file of files) writeFileSync(`${file}.br`, brotliCompressSync(readFileSync(file), { params }));
    return;
  }
  for (const file of files) {
    const { code } = await minify(readFileSync(file, "utf8"), { format: { comments: /licen[cs]e/i } });
    writeFileSync(file, code);
    writeFileSync(`${file}.br`, brotliCompressSync(code));
  }
}

main(process.argv.slice(2));
