// node compress.js [--quick] FILE...: makes each plotly.js bundle FILE smaller, and FILE.br from it with Brotli. That takes half a
// minute of the processor, so it is done at set-up and not when a server starts. --quick makes FILE itself no smaller, and FILE.br larger.
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliCompressSync, constants } = require("node:zlib");
const { minify } = require("terser");

// What charts of pages are made of besides lines. The bundles have more: pies, contours, calendars of the world.
const DRAWN = ["bar", "heatmap"];

// Chromium then compiles all functions in another thread while the file comes, and not one by one in the page's own when they are
// first called, which takes twice as long and is what a first opening of charts would wait for.
const EAGER = "//# allFunctionsCalledOnLoad\n";

// A bundle is `var a = wrap((exports, module) => …)` for each of its modules, and ends with a list of those to register, which its authors
// leave to whoever builds one. With the others not in that list, terser drops them and all that only they use: the wrapper does nothing by itself.
function onlyDrawn(code) {
  const lists = [...code.matchAll(/\.register\(\[((?:[\w$]+\(\),?)+)\]\)/g)];
  const wrap = code.match(/var ([\w$]+)=\([\w$]+,[\w$]+\)=>\(\)=>\{try\{/)?.[1];
  if (lists.length !== 1 || !wrap) throw new Error("plotly.js is bundled in another way than compress.js knows");
  const [[whole, listed]] = lists;
  const kept = listed.split(",").filter((call) => DRAWN.includes(nameOf(code, call.slice(0, -"()".length))));
  const wrapped = new RegExp(`(var [\\w$]+=)(?=${wrap.replaceAll("$", "\\$")}\\(\\()`, "g");
  return code.replace(whole, () => `.register([${kept}])`).replace(wrapped, "$1/*#__PURE__*/");
}

// The name of a module of plotly.js, which may be in another one that it hands on.
function nameOf(code, variable) {
  const begin = code.indexOf(`var ${variable}=`);
  const body = code.slice(begin, code.indexOf("});var ", begin));
  const other = body.match(/exports=([\w$]+)\(\)$/);
  return other ? nameOf(code, other[1]) : body.match(/moduleType:"\w+",name:"(\w+)"/)?.[1];
}

async function main(args) {
  const isQuick = args.includes("--quick");
  const params = isQuick ? { [constants.BROTLI_PARAM_QUALITY]: 6 } : {};
  for (const file of args.filter((arg) => arg !== "--quick")) {
    const source = onlyDrawn(readFileSync(file, "utf8"));
    const code = EAGER + (isQuick ? source : (await minify(source, { format: { comments: /licen[cs]e/i } })).code);
    writeFileSync(file, code);
    writeFileSync(`${file}.br`, brotliCompressSync(code, { params }));
  }
}

main(process.argv.slice(2));
