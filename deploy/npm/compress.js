// node compress.js [--quick] [--whole] FILE...: makes each plotly.js bundle FILE smaller, and FILE.br from it with Brotli. That takes half a
// minute of the processor, so it is done at set-up and not when a server starts. --quick makes FILE itself no smaller, and FILE.br larger.
// --whole leaves in it what no page draws.
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliCompressSync, constants } = require("node:zlib");
const { minify } = require("terser");

// What charts of pages are made of besides lines, by bundle. The bundles have more: pies, contours, calendars of the world.
const DRAWN = { basic: ["bar"], cartesian: ["bar", "heatmap"] };

// Chromium then compiles all functions in another thread while the file comes, and not one by one in the page's own when they are
// first called, which takes twice as long and is what a first opening of charts would wait for.
const EAGER = "//# allFunctionsCalledOnLoad\n";

// A bundle is `var a = wrap((exports, module) => …)` for each of its modules, and ends with a list of those to register, which its authors
// leave to whoever builds one. With the others not in that list, terser drops them and all that only they use: the wrapper does nothing by itself.
function onlyDrawn(code, drawn) {
  const lists = [...code.matchAll(/\.register\(\[((?:[\w$]+\(\),?)+)\]\)/g)];
  const wrap = code.match(/var ([\w$]+)=\([\w$]+,[\w$]+\)=>\(\)=>\{try\{/)?.[1];
  if (lists.length !== 1 || !wrap) throw new Error("plotly.js is bundled in another way than compress.js knows");
  const [[whole, listed]] = lists;
  const named = listed.split(",").map((call) => [call, nameOf(code, call.slice(0, -"()".length))]);
  const kept = named.filter(([, name]) => drawn.includes(name));
  const names = kept.map(([, name]) => name).sort();
  if (`${names}` !== `${drawn}`) throw new Error(`plotly.js has ${names.join(", ") || "none"} of what charts need: ${drawn.join(", ")}`);
  const wrapped = new RegExp(`(var [\\w$]+=)(?=${wrap.replaceAll("$", "\\$")}\\(\\()`, "g");
  return code.replace(whole, () => `.register([${kept.map(([call]) => call)}])`).replace(wrapped, "$1/*#__PURE__*/");
}

// The name of a module of plotly.js, which may be in another one that it hands on.
function nameOf(code, variable) {
  const begin = code.indexOf(`var ${variable}=`);
  const body = begin < 0 ? "" : code.slice(begin, code.indexOf("});var ", begin));
  const other = body.match(/exports=([\w$]+)\(\)$/);
  return other ? nameOf(code, other[1]) : body.match(/moduleType:"\w+",name:"(\w+)"/)?.[1];
}

async function main(args) {
  const isQuick = args.includes("--quick");
  const isWhole = args.includes("--whole");
  const params = isQuick ? { [constants.BROTLI_PARAM_QUALITY]: 6 } : {};
  const sources = args.filter((arg) => !arg.startsWith("--")).map((file) => {
    const code = readFileSync(file, "utf8");
    return [file, isWhole ? code : onlyDrawn(code, DRAWN[file.match(/plotly-(\w+)\.min\.js$/)[1]])];
  });
  for (const [file, source] of sources) {
    const code = EAGER + (isQuick ? source : (await minify(source, { format: { comments: /licen[cs]e/i } })).code);
    writeFileSync(file, code);
    writeFileSync(`${file}.br`, brotliCompressSync(code, { params }));
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
