// Frames of what starts the ranks (Trainmaster's runner, torchrun) in tracebacks: lines of them that follow each other are one
// row until a user opens it. Everything is still there: a search, a link to a line and a copy see all lines.

import { plain } from "./ansi.js";
import { failure } from "./failure.js";
import { filter, place } from "./state.js";

const MOST_LINES = 64; // more in a row are no traceback, and stay as they are
const MOST_BACK = 48; // lines, also of other ranks, from a frame's first line to its last
const MOST_CHARACTERS = 1_000;
const [RANK, STREAM, HOST, TEXT] = [2, 3, 5, 6];
const OF_RANK = /^\[rank\d+\]: ?/; // PyTorch puts it before each line of a rank's traceback
const FRAME = /^[\s+|]*File "([^"]+)", line \d/;
const SOURCE = /^[\s+|]{4,}\S/; // what stands below a frame's first line
const LAUNCHER = /\/(?:trainmaster|determined)\/(?:runner|launch|compat)\/|\/torch\/distributed\/(?:elastic\/|launcher\/|run\.py$|launch\.py$)|\/torchrun$|<frozen runpy>$|\/runpy\.py$/;

const opened = new Set(); // numbers of lines
const known = new WeakMap(); // line -> whether it belongs to a frame of the launcher

/** How many frames the fold has that begins at this index; 0: the row is hidden in one; null: it is a row like others. */
export function foldAt(source, index) {
  const fold = foldAround(source, index);
  return fold && (fold.first === index ? fold.frames : 0);
}

/** Show the lines of the fold at this index from now on. */
export function open(source, index) {
  const fold = foldAround(source, index);
  for (let at = fold?.first ?? 0; at <= (fold?.last ?? -1); at += 1) opened.add(source.numberAt(at));
}

function foldAround(source, index) {
  if (filter.search || !isFoldable(source, index)) return null;
  let [first, last] = [index, index];
  while (last - first < MOST_LINES && isFoldable(source, first - 1)) first -= 1;
  while (last - first < MOST_LINES && isFoldable(source, last + 1)) last += 1;
  if (first === last || last - first >= MOST_LINES) return null;
  const [from, to] = [source.numberAt(first), source.numberAt(last)];
  const failed = failure().line;
  const isAskedFor = (failed >= from && failed <= to) || (place.line !== null && place.line <= to && place.last >= from);
  if (isAskedFor) return null;
  let frames = 0;
  for (let at = first; at <= last; at += 1) if (FRAME.test(shown(source.at(at)))) frames += 1;
  return { first, last, frames: Math.max(1, frames) };
}

function isFoldable(source, index) {
  const line = source.at(index);
  if (!line || opened.has(source.numberAt(index))) return false;
  if (!known.has(line)) {
    const found = isOfLauncher(source, index, line);
    if (found === null) return false;
    known.set(line, found);
  }
  return known.get(line);
}

/** null: the line before it that would tell is not here yet. */
function isOfLauncher(source, index, line) {
  for (let at = index; at >= Math.max(0, index - MOST_BACK); at -= 1) {
    const each = source.at(at);
    if (!each) return null;
    if (![RANK, STREAM, HOST].every((part) => each[part] === line[part])) continue;
    const text = shown(each);
    const frame = FRAME.exec(text);
    if (frame) return LAUNCHER.test(frame[1]);
    if (!SOURCE.test(text)) return false;
  }
  return false;
}

const shown = (line) => plain(line[TEXT].slice(0, MOST_CHARACTERS)).replace(OF_RANK, "");
