// One line of a log as a row of the list: number, time, rank, host and text, with what the search finds marked.

import { pieces, plain } from "./ansi.js";
import { failure } from "./failure.js";
import { look, place } from "./state.js";
import { clock } from "./times.js";
import { hueOf } from "./rank_look.js";

// A browser lays out a row of half a million characters for a second; the rest of such a line comes when it is asked for.
const MOST_CHARACTERS = 4_000;
const [NUMBER, TIME, RANK, STREAM, LEVEL, HOST, TEXT, CUT] = [0, 1, 2, 3, 4, 5, 6, 7];
const opened = new Set(); // numbers of long lines that are shown whole
const says = new Map(["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"].map((level) => [level, new RegExp(`\\b${level}`, "i")]));

const template = document.createElement("div");
template.className = "log-row";
for (const name of ["no", "at", "rank", "host", "text"]) {
  const part = document.createElement(name === "no" ? "a" : "span");
  part.className = name;
  part.append("");
  template.append(part);
}
template.firstChild.tabIndex = -1;

/** `spans(number, text)` are the [begin, end] of what is marked in the text as one sees it; `frames`: see logs/folds.js. */
export function rowElement(line, number, { spans, isCurrent, isContext, opensGroup, frames }) {
  const row = template.cloneNode(true);
  const [no, at, rank, host, text] = row.children;
  row.dataset.number = number;
  no.firstChild.data = number;
  no.href = `${location.pathname}${location.search}#L${number}`;
  if (place.line !== null && number >= place.line && number <= place.last) row.classList.add("pointed");
  if (number === failure().line) row.classList.add("failure");
  if (!line) {
    row.classList.add(line === null ? "gone" : "absent");
    if (line === null) text.firstChild.data = "no longer kept";
    return row;
  }
  if (line[RANK] !== null) row.dataset.rank = line[RANK];
  at.firstChild.data = clock(line[TIME], look.times);
  rank.firstChild.data = line[RANK] === null ? "·" : line[RANK];
  rank.className = line[RANK] === null ? "rank none" : `rank ${hueOf(line[RANK])}`;
  host.firstChild.data = line[HOST] || "server";
  if (line[STREAM] === "s") row.classList.add("server");
  if (line[STREAM] === "e") row.classList.add("stderr");
  if (line[LEVEL]) level(row, line);
  if (isContext) row.classList.add("context");
  if (isCurrent) row.classList.add("match");
  if (opensGroup) row.classList.add("group");
  fill(text, line, spans);
  if (frames !== null) fold(row, frames);
  return row;
}

// The row of a fold's first line stands for all of them; their texts stay in the page, for what is copied.
function fold(row, frames) {
  row.dataset.frames = frames;
  if (!frames) return;
  const button = note("button", "unfold", `… ${frames} frame${frames === 1 ? "" : "s"} of the launcher`);
  button.setAttribute("aria-expanded", "false");
  button.tabIndex = 0;
  row.append(button);
}

// The level is a mark at the line's edge; its word is added where the line does not say it.
function level(row, line) {
  row.classList.add(line[LEVEL].toLowerCase());
  if (says.get(line[LEVEL])?.test(line[TEXT])) row.classList.add("says-level");
}

function fill(cell, line, spans) {
  const whole = line[TEXT];
  const isLong = whole.length > MOST_CHARACTERS && !opened.has(line[NUMBER]);
  const parts = pieces(isLong ? whole.slice(0, MOST_CHARACTERS) : whole);
  const marks = spans(line[NUMBER], parts.length === 1 ? parts[0].text : parts.map((part) => part.text).join(""));
  if (parts.length === 1 && !parts[0].classes && !marks.length && !isLong && !line[CUT]) {
    cell.firstChild.data = parts[0].text;
    return;
  }
  cell.replaceChildren(...dressed(parts, marks));
  if (isLong) cell.append(note("button", "more-text", `… ${(whole.length - MOST_CHARACTERS).toLocaleString("en")} more characters`));
  if (line[CUT]) cell.append(note("span", "cut", "continues in the next line of this rank"));
}

function note(tag, name, text) {
  const element = document.createElement(tag);
  element.className = name;
  element.dataset.note = text; // drawn by the style sheet: not a part of what is copied
  element.setAttribute("aria-label", text);
  if (tag === "button") { element.type = "button"; element.tabIndex = -1; }
  return element;
}

/** Elements and texts of the pieces, cut also where marks begin and end. */
function dressed(parts, marks) {
  const nodes = [];
  let at = 0;
  for (const part of parts) {
    const end = at + part.text.length;
    const edges = [...new Set([at, end, ...marks.flat().filter((edge) => edge > at && edge < end)])].sort((one, other) => one - other);
    for (let index = 0; index + 1 < edges.length; index += 1) {
      const [from, to] = [edges[index], edges[index + 1]];
      const isMarked = marks.some(([begin, stop]) => begin <= from && to <= stop);
      nodes.push(dress(part, part.text.slice(from - at, to - at), isMarked));
    }
    at = end;
  }
  return nodes;
}

function dress({ classes, ink, paper }, text, isMarked) {
  if (!classes && !isMarked) return document.createTextNode(text);
  const element = document.createElement(isMarked ? "mark" : "span");
  if (classes) element.className = classes;
  if (ink) element.style.setProperty("--own-ink", ink);
  if (paper) element.style.setProperty("--own-paper", paper);
  element.textContent = text;
  return element;
}

/** How many lines of `columns` characters the row needs. */
export function linesOf(line, columns) {
  if (!line) return 1;
  const text = line[TEXT];
  const length = text.length > MOST_CHARACTERS && !opened.has(line[NUMBER]) ? MOST_CHARACTERS + 24 : text.includes("\u001b") ? plain(text).length : text.length;
  return Math.max(1, Math.ceil(length / columns));
}

/** Show the whole of a long line from now on. */
export function open(number) { opened.add(number); }
