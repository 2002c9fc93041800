// node subset.js [--quick] FROM TO: the pages' typeface. TO gets a file of Latin with the letters and weights that nearly every page needs,
// which is half as large, and both files of FROM, which browsers fetch for the other letters of Latin. --quick takes all letters instead.
const { copyFileSync, readFileSync, writeFileSync } = require("node:fs");
const subset = require("subset-font");

const BASIC = "ibm-plex-sans-basic-wght-normal.woff2";
const LATIN = "ibm-plex-sans-latin-wght-normal.woff2";
const EXTENDED = "ibm-plex-sans-latin-ext-wght-normal.woff2";
// static/css/base.css names the same
const RANGES = [[0x20, 0x7e], [0xa0, 0xa0], [0xb0, 0xb1], [0xb5, 0xb5], [0xb7, 0xb7], [0xd7, 0xd7], [0x2000, 0x206f], [0x2191, 0x2191], [0x2193, 0x2193], [0x2212, 0x2212]];
const WEIGHTS = { wght: { min: 400, max: 700 } };

async function main(args) {
  const [from, to] = args.filter((arg) => arg !== "--quick");
  for (const name of [LATIN, EXTENDED]) copyFileSync(`${from}/${name}`, `${to}/${name}`);
  if (args.includes("--quick")) { copyFileSync(`${from}/${LATIN}`, `${to}/${BASIC}`); return; }
  const letters = RANGES.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, index) => String.fromCodePoint(first + index)));
  const some = await subset(readFileSync(`${from}/${LATIN}`), letters.join(""), { targetFormat: "woff2", variationAxes: WEIGHTS });
  writeFileSync(`${to}/${BASIC}`, some);
}

main(process.argv.slice(2));
