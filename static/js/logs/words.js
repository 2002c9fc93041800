// What is said beside the lines: which ones one sees, why there are none, that the view stands, and what is wrong.

import { state } from "./live.js";
import { isFiltered, look, place } from "./state.js";
import { day, zoneName } from "./times.js";

const part = (name) => document.getElementById(`log-${name}`);
const root = document.getElementById("log");
const faults = { search: "", place: "" };
const number = (value) => value.toLocaleString("en");

/** Show a sentence about the search or the place; an empty one takes it away. */
export function complain(about, text) {
  faults[about] = text || "";
  const said = [...new Set(Object.values(faults).filter(Boolean))].join(" ");
  write(part("error"), said);
  part("error").hidden = !said;
}

export function write(element, text) { if (element.textContent !== text) element.textContent = text; }

/** Bring all words up to date with where the reader stands. */
export function show(reader) {
  const { source } = reader;
  if (!source) { showAwaited(reader); return; }
  root.toggleAttribute("data-at-start", source.atStart && source.at(0) !== undefined);
  part("nothing").hidden = source.count > 0;
  if (!source.count) write(part("nothing"), whyNothing(source));
  part("paused").hidden = reader.follows || !source.count;
  if (!reader.follows) write(part("paused"), paused(reader));
  write(part("where"), where(reader));
  part("copy").hidden = place.line === null;
  if (place.line !== null) write(part("copy"), place.line === place.last ? `Copy line ${place.line}` : `Copy lines ${place.line} to ${place.last}`);
}

// No line is here yet of those that are wanted now.
function showAwaited({ isAwaited }) {
  part("nothing").hidden = !isAwaited;
  write(part("nothing"), isFiltered() ? searching(0) : "Reading the log …");
  part("paused").hidden = true;
  write(part("where"), "");
}

function searching(looked) {
  return state.newest ? `Searching … ${number(looked)} of ${number(Math.max(looked, state.newest))} lines searched` : "Searching …";
}

function paused({ unseen, pausedAt }) {
  if (state.ended && !unseen) return "Jump to the end";
  return `View paused at ${pausedAt.toISOString().slice(11, 19)} UTC · ${number(unseen)} new line${unseen === 1 ? "" : "s"} · jump to end`;
}

function where({ source, seen, topTime }) {
  if (!source.count) return "";
  const when = topTime && look.times !== "none" ? ` · ${day(topTime, look.times)} ${zoneName(look.times, topTime)}` : "";
  if (source.isWhole) return `Lines ${number(source.numberAt(seen.first))} to ${number(source.numberAt(seen.last))} of ${number(source.count)}${when}`;
  const more = [source.atStart ? "" : "before", source.atEnd ? "" : "after"].filter(Boolean).join(" and ");
  const count = source.context ? source.matches.size : source.count;
  const fit = `${number(count)} matching line${count === 1 ? "" : "s"}`;
  if (source.looked !== null) return `${fit} so far. ${searching(source.looked)}`;
  return `${fit}, of ${number(Math.max(source.upto, state.newest))}${more ? `; there may be more ${more} them` : ""}${when}`;
}

function whyNothing(source) {
  if (!source.atStart || !source.atEnd) return searching(source.looked ?? 0);
  if (isFiltered()) return "No lines match this filter.";
  return state.ended ? "It ended without writing a line." : "No lines yet. They appear here as soon as a rank writes.";
}
