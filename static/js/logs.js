// The log viewer. Lines have numbers: history is read around a number, the socket sends what comes after one, and so the
// two join without gap or repeat. This module brings the parts together: where one reads, what is followed, what is shown.

import { start as startControls, takeSearch } from "./log_controls.js";
import { start as startCopying } from "./log_copy.js";
import { Refused, ask } from "./log_fetch.js";
import { FoundLines } from "./log_found.js";
import { WholeLog } from "./log_history.js";
import { start as startKeys } from "./log_keys.js";
import { ROW, RowList } from "./log_list.js";
import { connect, isOpen, onFrame, onOpen, onStatus, say, state } from "./log_live.js";
import "./log_ranks.js";
import { linesOf, open as openLong, rowElement } from "./log_row.js";
import { Search } from "./log_search.js";
import { onSpans, spans } from "./log_spans.js";
import { asQuery, filter, isFiltered, levels, look, onChange, place, point, remember } from "./log_state.js";
import { day, readTime, zoneName } from "./log_times.js";
import { heard, say as tell } from "./log_told.js";

const FIRST_PAGE = 500;
const REMEMBER_MS = 400;
const RETRY_MS = 1_000;
const FILTERS = ["ranks", "hosts", "streams", "level", "from", "to"];

const part = (name) => document.getElementById(`log-${name}`);
const view = part("view");
const root = document.getElementById("log");

let source = null;
let generation = 0;
let shown = 0; // the generation that `source` is of: while a new one is read, the old one's wishes are none
let following = true;
let unseen = 0;
let pausedAt = new Date();
let seen = { first: 0, last: 0 };
let columns = 80;
let remembering = null;

const list = new RowList(view, {
  makeRow,
  count: () => source?.count ?? 0,
  lines: (index) => linesOf(source.at(index), columns),
  onMove,
});
const search = new Search({ onChange: showMatches, onRefused: complain });

function makeRow(index) {
  const number = source.isWhole ? index + 1 : source.at(index)[0];
  const isMatch = source.isMatch(number) || number === search.current;
  return rowElement(source.at(index), number, {
    spans, isMatch, isContext: Boolean(source.context) && !source.isMatch(number), opensGroup: source.opensGroup(index),
  });
}

function complain(text) {
  part("error").textContent = text || "";
  part("error").hidden = !text;
}

// --- where one reads ---

/** Read the log at its end, about a line or about a time: {line}, {at}, or nothing for the end. */
async function openAt({ line = null, at = null } = {}) {
  generation += 1;
  const mine = generation;
  const query = asQuery();
  query.set("limit", FIRST_PAGE);
  if (at !== null) query.set("at", at);
  else if (line !== null) query.set("around", line);
  const context = filter.only && filter.search ? filter.context : 0;
  if (context) query.set("context", context);
  root.setAttribute("aria-busy", "true");
  try {
    const answer = await ask(query);
    if (mine !== generation) return;
    complain("");
    begin(answer, context);
    shown = mine;
    if (answer.line === undefined) follow();
    else stand(line, answer);
    wish();
  } catch (error) {
    if (mine !== generation) return;
    if (error instanceof Refused) { complain(error.message); begin(NOTHING, 0); }
    else setTimeout(() => { if (mine === generation) openAt({ line, at }); }, RETRY_MS); // away; the socket may stay open all the while
  } finally { if (mine === generation) root.removeAttribute("aria-busy"); }
}

const NOTHING = { lines: [], upto: 0, first: 1, last: 0, done: true, end: true };

function begin(answer, context) {
  source?.close();
  const query = asQuery();
  if (context) query.set("context", context);
  const heardOf = { onNews: news, onRefused: complain };
  source = isFiltered() ? new FoundLines({ query, context, ...heardOf }) : new WholeLog(heardOf);
  source.take(answer);
  list.clear();
  unseen = 0;
}

// Stand at the line that was asked for: the one that the address names, or the first at its time.
function stand(line, answer) {
  pause();
  const number = answer.line;
  list.show(source.indexOf(number), 0.4);
  if (place.at !== null && line === null) { place.line = place.last = number; list.remake(); }
  if (line !== null && line > answer.upto) complain(`There is no line ${line.toLocaleString("en")} yet; the log has ${answer.upto.toLocaleString("en")}.`);
  else if (line !== null && place.line === line && !source.isWhole && source.at(source.indexOf(line))?.[0] !== line) complain(`Line ${line.toLocaleString("en")} does not fit the filter; here is the next one that does.`);
}

/** Go to a line, read from the server when it is not here. */
function goTo(line) {
  if (!source?.has(line)) { openAt({ line }); return; }
  pause();
  list.show(source.indexOf(line));
}

function follow() {
  if (!source?.atEnd) { openAt(); return; }
  following = true;
  unseen = 0;
  list.follow();
}

function pause() {
  if (following) pausedAt = new Date();
  following = list.followsEnd = false;
}

const toStart = () => goTo(1);

// What the socket shall send: everything behind what the first page has told.
function wish() {
  if (!source || shown !== generation || !isOpen()) return;
  say({
    generation, after: Math.max(source.upto, source.newest ?? 0), ranks: filter.ranks, levels: levels(), hosts: filter.hosts, streams: filter.streams,
    after_time: filter.from === null ? null : filter.from - 1e-6, before_time: filter.to,
    search: filter.only ? filter.search : "", regex: filter.regex,
  });
}

function take(frame) {
  if (frame.generation !== undefined && frame.generation !== generation) return;
  if (frame.error) complain(frame.error);
  if (!frame.lines || !source) return;
  const before = Math.max(source.upto, source.newest ?? 0);
  const rows = frame.lines.filter((line) => line[0] > before);
  source.append(rows, Math.max(frame.upto ?? 0, before), following);
  say({ ack: source.upto });
  if (following) heard(rows);
  else unseen += rows.length;
  if (rows.length || frame.last) news(0);
}

function news(shift) {
  if (shift) list.shift(shift);
  list.remake((element) => element.classList.contains("absent") && source.at(source.indexOf(Number(element.dataset.number))));
  list.draw();
}

// --- what is shown ---

function onMove({ first, last, byHand, up }) {
  seen = { first, last };
  if (!source) return;
  if (byHand && up && !list.isAtBottom && following) pause();
  if (byHand && list.isAtBottom && source.atEnd) { following = true; unseen = 0; }
  if (following !== list.followsEnd) { list.followsEnd = following; if (following) list.draw(); }
  source.need(first, last);
  showPlace();
  if (byHand) { clearTimeout(remembering); remembering = setTimeout(() => remember(following ? null : source.numberAt(seen.first)), REMEMBER_MS); }
}

function showPlace() {
  root.toggleAttribute("data-at-start", source.atStart && source.at(0) !== undefined);
  part("nothing").hidden = source.count > 0;
  if (!source.count) part("nothing").textContent = whyNothing();
  part("paused").hidden = following || !source.count;
  if (!following) write(part("paused"), pausedWords());
  write(part("where"), whereWords());
  part("copy").hidden = place.line === null;
  if (place.line !== null) write(part("copy"), place.line === place.last ? `Copy line ${place.line}` : `Copy lines ${place.line} to ${place.last}`);
}

function write(element, text) { if (element.textContent !== text) element.textContent = text; }

function pausedWords() {
  if (state.ended && !unseen) return "Jump to the end";
  return `View paused at ${pausedAt.toISOString().slice(11, 19)} UTC · ${unseen.toLocaleString("en")} new line${unseen === 1 ? "" : "s"} · jump to end`;
}

function whereWords() {
  if (!source.count) return source.atStart ? "" : `Looking further back than line ${source.first.toLocaleString("en")}`;
  const number = (value) => value.toLocaleString("en");
  const time = source.at(seen.first)?.[1];
  const when = time && look.times !== "none" ? ` · ${day(time, look.times)} ${zoneName(look.times, time)}` : "";
  const [first, last] = [source.numberAt(seen.first), source.numberAt(seen.last)];
  if (source.isWhole) return `Lines ${number(first)} to ${number(last)} of ${number(source.count)}${when}`;
  const more = [source.atStart ? "" : "before", source.atEnd ? "" : "after"].filter(Boolean).join(" and ");
  const so = more ? `; more may stand ${more} them` : "";
  return `${number(source.count)} line${source.count === 1 ? "" : "s"} that fit, of ${number(Math.max(source.upto, state.newest))}${so}${when}`;
}

function whyNothing() {
  if (!source.atStart) return "Looking further back …";
  if (isFiltered()) return "No line fits this filter.";
  return state.ended ? "It ended without a line." : "No line yet. The first ones stand here as soon as a rank writes.";
}

function showMatches() {
  write(part("matches"), search.words);
  for (const name of ["previous", "next"]) part(name).hidden = !filter.search;
}

async function nextMatch(step) {
  if (takeSearch() || !filter.search || !source) return;
  const isSeen = search.current !== null && seen.first <= source.indexOf(search.current) && source.indexOf(search.current) <= seen.last;
  const from = isSeen ? search.current : source.numberAt(step > 0 ? seen.first : seen.last) - step;
  const found = await search.next(from, step);
  if (found === null) { tell(step > 0 ? "No match further down." : "No match further up."); return; }
  search.current = found;
  goTo(found);
  list.remake();
  showMatches();
}

// The room of a wrapped text in characters: of the list's width, what the columns before it leave.
function measure() {
  const text = root.querySelector(".log-row:not(.absent) .text");
  if (!text) return;
  const probe = document.createElement("span");
  probe.className = "log-probe";
  probe.textContent = "0".repeat(100);
  view.append(probe);
  columns = Math.max(10, Math.floor((view.clientWidth - (text.offsetLeft + 12)) / (probe.offsetWidth / 100)));
  probe.remove();
}

// --- acting ---

onChange((names) => {
  const reopens = FILTERS.some((name) => names.has(name)) || (filter.search && (names.has("only") || names.has("context") || (filter.only && (names.has("search") || names.has("regex")))))
    || (names.has("search") && !filter.search && filter.only);
  if (reopens || names.has("search") || names.has("regex")) search.restart();
  const line = names.has("moved") ? place.line ?? history.state?.line ?? null : following || !source ? null : source.numberAt(seen.first);
  if (names.has("moved") && place.at !== null && place.line === null) openAt({ at: place.at });
  else if (reopens) openAt({ line });
  else if (names.has("moved")) { if (line !== null) goTo(line); else follow(); }
  if (names.has("pointed") && place.at !== null) openAt({ at: place.at });
  if (names.has("wrap")) { measure(); list.reset({ wraps: look.wrap }); }
  else if (!reopens) list.remake();
  if (!reopens && (names.has("search") || names.has("regex"))) complain("");
  if (source) showPlace();
});

onSpans((numbers) => list.remake((element) => numbers.has(Number(element.dataset.number))));

view.addEventListener("click", (event) => {
  const number = Number(event.target.closest(".log-row")?.dataset.number);
  if (event.target.closest(".no")) {
    event.preventDefault();
    const from = event.shiftKey && place.line !== null ? place.line : number;
    const isOnly = place.line === number && place.last === number;
    point(isOnly ? {} : { line: Math.min(from, number), last: Math.max(from, event.shiftKey ? place.last ?? number : number, number) });
  } else if (event.target.closest(".more-text")) {
    openLong(number);
    list.remake((element) => Number(element.dataset.number) === number);
    list.settle();
  }
});

part("paused").addEventListener("click", () => { follow(); view.focus(); });
part("next").addEventListener("click", () => nextMatch(1));
part("previous").addEventListener("click", () => nextMatch(-1));

part("go-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = part("go").value.trim().replaceAll(",", "");
  const time = /^#?L?\d{1,15}$/i.test(text) ? null : readTime(text, look.times === "local" ? "local" : "utc", timeNear());
  if (/^#?L?\d{1,15}$/i.test(text)) { const line = Number(text.replace(/^#?L?/i, "")); point({ line, last: line }); goTo(line); }
  else if (time !== null) point({ at: time });
  else { complain(`“${text}” is neither a line's number nor a time such as 10:41 or 2026-11-21 10:41:05.`); return; }
  view.focus();
});

const timeNear = () => source?.at(seen.first)?.[1] ?? Date.now() / 1000;

new ResizeObserver(() => { if (look.wrap) measure(); }).observe(view);
onFrame(take);
onStatus(() => { if (source) showPlace(); });
onOpen(wish);
startControls(timeNear);
startCopying(view, part("copy"), tell);
startKeys(view, part("search"), { follow, toStart, nextMatch, focusGo: () => part("go").select() });
list.wraps = look.wrap;

function openFirst() {
  const line = place.line ?? history.state?.line ?? null;
  return openAt(place.at !== null ? { at: place.at } : { line });
}

connect();
openFirst().then(() => { if (look.wrap) { measure(); list.reset(); } });
search.restart();
