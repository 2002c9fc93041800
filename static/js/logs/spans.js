// Where a line holds what is searched for. Plain text is looked for here; a regular expression in a worker, since a slow one
// would stop the page: its marks come a moment after the lines, and not at all where the browser reads it otherwise than
// the server does.

import { filter } from "./state.js";

const PATIENCE_MS = 1_000;
const MOST_KNOWN = 5_000;

let worker = null;
let busySince = 0;
let known = new Map(); // number -> spans, of the pattern
let pattern = "";
let asked = [];
let listener = () => {};
let gaveUp = false;

/** `listener(numbers)` is called when marks of some lines have become known. */
export function onSpans(heard) { listener = heard; }

/** [[begin, end]…] of the line's shown text. */
export function spans(number, text) {
  if (!filter.search) return [];
  if (!filter.regex) return inPlain(text, filter.search);
  if (pattern !== filter.search) forget(filter.search);
  const found = known.get(number);
  if (!found && !gaveUp) ask(number, text);
  return found ?? [];
}

function inPlain(text, search) {
  const [low, wanted] = [text.toLowerCase(), search.toLowerCase()];
  if (low.length !== text.length) return [];
  const found = [];
  for (let at = low.indexOf(wanted); at >= 0 && found.length < 200; at = low.indexOf(wanted, at + wanted.length)) found.push([at, at + wanted.length]);
  return found;
}

function forget(next) {
  pattern = next;
  known = new Map();
  asked = [];
  gaveUp = false;
  stop();
}

function stop() {
  worker?.terminate();
  worker = null;
  busySince = 0;
}

function ask(number, text) {
  if (!asked.length) queueMicrotask(send);
  asked.push([number, text]);
}

function send() {
  if (!asked.length || busySince) return;
  worker ??= start();
  busySince = Date.now();
  const asking = pattern;
  worker.postMessage({ pattern, texts: asked.splice(0) });
  setTimeout(() => {
    if (busySince && asking === pattern && Date.now() - busySince >= PATIENCE_MS - 50) { gaveUp = true; asked = []; stop(); }
  }, PATIENCE_MS);
}

function start() {
  const made = new Worker(new URL("./spans_worker.js", import.meta.url));
  made.onmessage = ({ data }) => {
    busySince = 0;
    if (data.pattern !== pattern) return;
    if (!data.spans) { gaveUp = true; return; }
    if (known.size > MOST_KNOWN) known = new Map();
    for (const [number, found] of data.spans) known.set(number, found);
    listener(new Set(data.spans.filter(([, found]) => found.length).map(([number]) => number)));
    send();
  };
  return made;
}
