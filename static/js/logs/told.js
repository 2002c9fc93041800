// Tells those who listen what has come, one sentence at a time and at most one in 5 s: the lines themselves while they are
// few, else how many. Only while the log is followed and the focus is in it; the list itself is silent.

import { plain } from "./ansi.js";

const EVERY_MS = 5_000;
const FEW = 3;
const TEXT = 6;

const region = document.getElementById("log-told");
const root = document.getElementById("log");
let waiting = [];
let count = 0;
let toldAt = 0;
let timer = null;

/** New rows at the end that is followed. */
export function heard(rows) {
  if (!root.contains(document.activeElement)) return;
  count += rows.length;
  waiting = waiting.concat(rows.slice(-FEW)).slice(-FEW);
  timer ??= setTimeout(tell, Math.max(0, toldAt + EVERY_MS - Date.now()));
}

function tell() {
  region.textContent = count <= FEW ? waiting.map((row) => plain(row[TEXT]).slice(0, 300)).join(". ") : `${count} new lines.`;
  [waiting, count, toldAt, timer] = [[], 0, Date.now(), null];
}

/** Say a sentence now. */
export function say(text) { region.textContent = text; }
