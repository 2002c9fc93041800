// The log viewer: brings the lines, the search, the fields and the keys together.

import { start as startControls, takeSearch } from "./controls.js";
import { start as startCopying } from "./copy.js";
import { start as startKeys } from "./keys.js";
import { failure, onFailure } from "./failure.js";
import { connect, onStatus } from "./live.js";
import "./ranks.js";
import { Reader } from "./reader.js";
import { open as openLong } from "./row.js";
import { Search } from "./search.js";
import { onSpans } from "./spans.js";
import { filter, isFiltered, look, onChange, place, point } from "./state.js";
import { readTime } from "./times.js";
import { heard, say } from "./told.js";
import { complain, show, write } from "./words.js";

const LINE = /^#?L?(\d{1,15})$/i;
const CHOOSING = ["ranks", "hosts", "streams", "level", "from", "to"];

const part = (name) => document.getElementById(`log-${name}`);
const view = part("view");
let pointedFrom = place.line;

const search = new Search({ onChange: () => showMatches(), onRefused: (text) => complain("search", text) });
const reader = new Reader(view, { isCurrent: (number) => number === search.current, onShow: () => show(reader), onHeard: heard });

function showMatches(more = "") {
  write(part("matches"), `${search.words}${more}`);
  for (const name of ["previous", "next"]) part(name).disabled = !filter.search;
}

async function nextMatch(step) {
  if (takeSearch() || !filter.search || !reader.source) return;
  const { source, seen } = reader;
  const isAtMatch = search.current !== null && reader.isInView(search.current);
  const from = isAtMatch ? search.current : source.numberAt(step > 0 ? seen.first : seen.last) - step;
  const found = await search.next(from, step);
  if (found === null) { if (search.matches.length) showMatches(step > 0 ? ", none further down" : ", none further up"); return; }
  search.current = found;
  reader.goTo(found);
  reader.list.remake();
  showMatches();
}

// Whether other lines are to be shown than before, now that these parts of the filter have changed.
function isOtherLines(names) {
  if (CHOOSING.some((name) => names.has(name))) return true;
  if (names.has("only")) return filter.search !== "";
  return filter.only && (names.has("search") || (filter.search !== "" && (names.has("regex") || names.has("context"))));
}

onChange((names) => {
  const reopens = isOtherLines(names);
  if (reopens || names.has("search") || names.has("regex")) { complain("search", ""); search.restart(); }
  if (names.has("moved")) reader.openAt(wanted());
  else if (names.has("pointed") && place.at !== null) reader.openAt({ at: place.at });
  else if (reopens) reader.openAt({ line: reader.follows ? null : reader.top });
  if (names.has("wrap")) reader.wrap();
  else { reader.list.remake(); reader.list.draw(); }
  show(reader);
});

/** What the address, or where one was before going back, asks for; else where it failed first. */
function wanted() {
  if (place.at !== null) return { at: place.at };
  return { line: history.state?.line ?? place.line ?? (isFiltered() ? null : failure().line) };
}

onSpans((numbers) => reader.list.remake((element) => numbers.has(Number(element.dataset.number))));
onStatus(() => show(reader));

// --- acting ---

view.addEventListener("click", (event) => {
  const number = Number(event.target.closest(".log-row")?.dataset.number);
  if (event.target.closest(".no")) {
    event.preventDefault();
    pointAt(number, event.shiftKey);
  } else if (event.target.closest(".unfold")) {
    reader.unfold(number);
    view.focus({ preventScroll: true });
  } else if (event.target.closest(".more-text")) {
    openLong(number);
    reader.list.remake((element) => Number(element.dataset.number) === number);
    reader.list.settle();
  }
});

// A click makes the link, a second one takes it away; with Shift it reaches from the line clicked before to this one.
function pointAt(number, reaches) {
  if (reaches && pointedFrom !== null) point({ line: Math.min(pointedFrom, number), last: Math.max(pointedFrom, number) });
  else if (place.line === number && place.last === number) point();
  else point({ line: number, last: number });
  if (!reaches) pointedFrom = place.line;
  reader.pause();
  show(reader);
}

function goTo(text) {
  const line = Number(LINE.exec(text.replaceAll(",", ""))?.[1] ?? 0);
  const time = line ? null : readTime(text, look.times === "local" ? "local" : "utc", timeNear());
  if (line) { point({ line, last: line }); reader.goTo(line); }
  else if (time !== null) point({ at: time });
  else { complain("place", `“${text}” is neither a line number nor a time such as 10:41 or 2026-11-21 10:41:05.`); return; }
  view.focus();
}

const timeNear = () => reader.topTime ?? Date.now() / 1000;

function toFailure() {
  const { line } = failure();
  if (line === null) return;
  reader.goTo(line);
  view.focus();
}

part("failed").addEventListener("click", toFailure);
part("go-form").addEventListener("submit", (event) => { event.preventDefault(); goTo(part("go").value.trim()); });
part("paused").addEventListener("click", () => { reader.follow(); view.focus(); });
part("next").addEventListener("click", () => nextMatch(1));
part("previous").addEventListener("click", () => nextMatch(-1));
new ResizeObserver(() => { if (look.wrap) reader.measure(); }).observe(view);

startControls(timeNear);
startCopying(view, part("copy"), say);
startKeys(view, part("search"), {
  follow: () => reader.follow(), toStart: () => reader.goTo(1), nextMatch, toFailure, focusGo: () => part("go").select(),
});
onFailure(() => { part("failed").hidden = failure().line === null; });
connect();
search.restart();
reader.openAt(wanted()).then(() => { if (look.wrap) reader.wrap(); });
