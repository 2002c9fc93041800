// The heat map of many ranks: a row of cells per host, the worst host first: marked, then the oldest progress. A cell is made
// once and changed in place.

import { keysAreOn } from "../frame.js";
import { openMenu } from "./rank_menu.js";
import { filter, onChange } from "./state.js";
import { choose, isChosen } from "./rank_choice.js";
import { describe, progress, progressAge, write } from "./rank_look.js";

/** Seconds behind the median peer at which a cell is a shade darker. */
const BEHIND_S = [5, 15, 60, 300];
const SILENT_S = 10;
const SORT_EVERY_MS = 5_000;

const map = document.getElementById("rank-map");
const hosts = new Map(); // name -> { row, name, worst, cells, entries }
const cells = new Map(); // rank -> { cell, entry, host }
let sorted = []; // names of hosts as they stand
let sortedAt = 0;
let markedThen = "";
let pointed = null; // the cell under the pointer, or with the focus

export function showMap(entries) {
  const newest = Math.min(...entries.map(({ age }) => age ?? Infinity));
  const middle = median(entries.map(progressAge).filter((age) => age !== null));
  for (const host of hosts.values()) host.entries = [];
  for (const entry of entries) {
    const cell = cellOf(entry);
    paint(cell, entry, middle, (entry.age ?? Infinity) - newest >= SILENT_S);
    hosts.get(entry.host).entries.push(entry);
  }
  for (const host of hosts.values()) sayWorst(host);
  sort(entries);
  markChosen();
}

function cellOf(entry) {
  const known = cells.get(entry.rank);
  if (known && known.host === entry.host) return known;
  known?.cell.remove();
  const cell = document.createElement("button");
  cell.className = "cell";
  cell.dataset.rank = entry.rank;
  cell.textContent = entry.rank;
  cell.tabIndex = cells.size ? -1 : 0;
  const made = { cell, host: entry.host, entry };
  cells.set(entry.rank, made);
  const row = (hosts.get(entry.host) ?? makeHost(entry.host)).cells;
  row.insertBefore(cell, [...row.children].find((other) => Number(other.dataset.rank) > entry.rank) ?? null);
  return made;
}

function makeHost(name) {
  const [row, label, worst, line] = ["div", "b", "span", "div"].map((tag) => document.createElement(tag));
  row.className = "map-host";
  label.textContent = name;
  label.title = name;
  worst.className = "hint";
  line.className = "cells";
  row.append(label, worst, line);
  map.append(row);
  const host = { row, worst, cells: line, entries: [] };
  hosts.set(name, host);
  return host;
}

function paint(known, entry, middle, isSilent) {
  known.entry = entry;
  const age = progressAge(entry);
  const shade = middle === null ? "" : entry.ended ? "ended" : age === null ? "unknown" : `behind-${BEHIND_S.filter((limit) => age - middle >= limit).length}`;
  const looks = `cell ${shade}${entry.mark ? " marked" : ""}${isSilent && !entry.ended ? " silent" : ""}`;
  if (known.cell.className !== looks) known.cell.className = looks;
  known.isSilent = isSilent;
  if (entry.mark || known.cell === pointed || known.cell.title) explain(known);
}

// In words only where somebody looks: 512 sentences a second cost more than all else here.
function explain({ cell, entry, isSilent }) {
  const says = `${describe(entry)}${isSilent ? " Silent while others write." : ""}`;
  if (cell.title === says) return;
  cell.title = says;
  cell.setAttribute("aria-label", says);
}

function look(event) {
  const known = knownAt(event.target);
  if (!known) return;
  pointed = known.cell;
  explain(known);
}

map.addEventListener("pointerover", look);
map.addEventListener("focusin", look);

function sayWorst(host) {
  host.entries.sort(worseFirst);
  const [worst] = host.entries;
  host.row.hidden = !worst; // its ranks have moved
  write(host.worst, worst ? `${worst.mark ? `rank ${worst.rank}: ` : ""}${progress(worst)}` : "");
}

const worseFirst = (one, other) => Boolean(other.mark) - Boolean(one.mark) || (progressAge(other) ?? -1) - (progressAge(one) ?? -1) || one.rank - other.rank;

// By the style's order, so that no cell is torn out under a person's focus; at once for a new mark, else now and then.
function sort(entries) {
  const marked = entries.filter(({ mark }) => mark).map(({ rank }) => rank).join();
  const isDue = Date.now() - sortedAt > SORT_EVERY_MS && !map.matches(":hover, :focus-within");
  if (marked === markedThen && sorted.length === hosts.size && !isDue) return;
  markedThen = marked;
  sortedAt = Date.now();
  sorted = [...hosts].filter(([, host]) => host.entries.length).sort(([, one], [, other]) => worseFirst(one.entries[0], other.entries[0])).map(([name]) => name);
  sorted.forEach((name, index) => { if (hosts.get(name).row.style.order !== `${index}`) hosts.get(name).row.style.order = index; });
}

function markChosen() {
  const everybody = !filter.ranks.length && !filter.expression;
  map.classList.toggle("some", !everybody);
  for (const [rank, { cell }] of cells) {
    const pressed = String(isChosen(rank));
    if (cell.getAttribute("aria-pressed") !== pressed) cell.setAttribute("aria-pressed", pressed);
  }
}

function median(ages) {
  if (!ages.length) return null;
  return ages.sort((one, other) => one - other)[Math.floor(ages.length / 2)];
}

const knownAt = (target) => cells.get(Number(target.closest(".cell")?.dataset.rank));

map.addEventListener("click", (event) => {
  const known = knownAt(event.target);
  if (known) { take(known.cell); choose(known.entry.rank, event); }
});

map.addEventListener("contextmenu", (event) => {
  const known = knownAt(event.target);
  if (!known) return;
  event.preventDefault();
  openMenu(known.entry, known.cell);
});

map.addEventListener("keydown", (event) => {
  const known = knownAt(event.target);
  if (!known || event.altKey) return;
  if (event.key === "Enter" || event.key === " ") choose(known.entry.rank, event); // with Ctrl a browser clicks nothing
  else if (event.key === "m" && keysAreOn()) openMenu(known.entry, known.cell);
  else if (!move(known, event.key)) return;
  event.preventDefault();
});

// Left and right along a host and on to the next, up and down to the host above or below, as the rows stand on the screen.
function move(known, key) {
  const row = [...hosts.get(known.host).cells.children];
  const at = row.indexOf(known.cell);
  const place = sorted.indexOf(known.host);
  const perLine = getComputedStyle(map).gridTemplateColumns.split(" ").length;
  const inHost = (index, local) => {
    const there = hosts.get(sorted[index])?.cells.children;
    return there?.[local < 0 ? there.length - 1 : Math.min(local, there.length - 1)];
  };
  const next = {
    ArrowLeft: () => row[at - 1] ?? inHost(place - 1, -1),
    ArrowRight: () => row[at + 1] ?? inHost(place + 1, 0),
    ArrowUp: () => inHost(place - perLine, at),
    ArrowDown: () => inHost(place + perLine, at),
    Home: () => inHost(0, 0),
    End: () => inHost(sorted.length - 1, -1),
  }[key];
  if (!next) return false;
  const cell = next();
  if (cell) { take(cell); cell.focus(); }
  return true;
}

function take(cell) {
  for (const other of map.querySelectorAll('.cell[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
}

onChange(markChosen);
