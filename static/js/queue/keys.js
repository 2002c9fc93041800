// The keyboard on the board: j and k (or the arrows) move the focus from row to row, the other keys act on the focused row.
// Single keys act while the focus is in no field, and can be switched off (keys.js).

import { keysAreOn } from "../frame.js";
import { edit, open } from "./edit.js";
import { clear, toggle } from "./select.js";

const GO_WITHIN_MS = 1500; // `g` then `j` leads to a room: that j moves no row
let goPressedAt = -GO_WITHIN_MS;

export const rows = () => [...document.querySelectorAll("tr[data-job]")];
const focused = () => document.activeElement?.closest?.("tr[data-job]") ?? null;
const inField = (element) => element.closest("input:not([type=checkbox]), select, textarea, [contenteditable]") !== null;

function step(by) {
  const all = rows();
  const at = all.indexOf(focused());
  const to = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by));
  all[to]?.focus();
  all[to]?.scrollIntoView({ block: "nearest" });
}

// Past the row above or below, as a drag would put it.
export function moveBeside(row, target, ahead) {
  return edit([["job", row.dataset.job], ["do", ahead ? "ahead" : "behind"], ["value", target.dataset.job]]);
}

function shift(row, up) {
  const all = rows();
  const target = all[all.indexOf(row) + (up ? -1 : 1)];
  if (target && document.querySelector("#bulk[data-ordered]")) moveBeside(row, target, up);
}

const ON_ROW = {
  m: (row) => open(`/jobs/manage/${row.dataset.job}`),
  w: (row) => { location.href = `/jobs/job/${row.dataset.job}`; },
  t: (row) => edit([["job", row.dataset.job], ["do", "top"]]),
  p: (row) => edit([["job", row.dataset.job], ["do", row.dataset.state === "PAUSED" ? "activate" : "pause"]]),
  l: (row) => { location.href = `/jobs/logs/${row.dataset.job}`; },
  x: toggle,
  Enter: (row) => row.querySelector("a.name")?.click(),
};

const MOVES = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.defaultPrevented || inField(event.target) || document.querySelector("dialog[open]")) return;
  if (!keysAreOn()) return;
  const row = focused();
  const { key } = event;
  if (key === "g") { goPressedAt = Date.now(); return; }
  if (Date.now() - goPressedAt < GO_WITHIN_MS) { goPressedAt = -GO_WITHIN_MS; return; }
  if (event.altKey) {
    if (row && (key === "ArrowUp" || key === "ArrowDown")) { event.preventDefault(); shift(row, key === "ArrowUp"); }
    return;
  }
  if (MOVES[key] && (row || !key.startsWith("Arrow"))) { event.preventDefault(); step(MOVES[key]); return; }
  if (key === "Escape") { if (!clear()) row?.blur(); return; }
  if (!row || !ON_ROW[key] || (key === "Enter" && event.target !== row)) return;
  event.preventDefault();
  ON_ROW[key](row);
});
