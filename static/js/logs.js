// The log viewer. Lines have numbers: history is read backwards from a number, the socket sends what comes after one,
// and so the two join without gap or repeat. Only the rows in view exist in the page.

import { keysAreOn } from "./keys.js";
import { connect, isOpen, onFrame, onOpen, say, state, toLogin } from "./log_live.js";
import "./log_ranks.js";
import { asQuery, change, filter, levels, look, onChange } from "./log_state.js";

const ROW = 19;
const PAGE = 500;
const MOST_LINES = 100_000;
const ANSI = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;

const root = document.getElementById("log");
const view = document.getElementById("log-view");
const space = view.querySelector(".log-space");
const rows = view.querySelector(".log-rows");
const paused = document.getElementById("log-paused");
const nothing = document.getElementById("log-nothing");
const errorMark = document.getElementById("log-error");
const fields = {
  level: document.getElementById("log-level"),
  search: document.getElementById("log-search"),
  regex: document.getElementById("log-regex"),
  times: document.getElementById("log-times"),
};

const log = { lines: [], upto: 0, readFrom: null, atStart: false, following: true, unseen: 0, loading: false, generation: 0 };
let lastTop = 0;
let pausedAt = null;

function complain(text) {
  errorMark.textContent = text || "";
  errorMark.hidden = !text;
}

// --- reading ---

async function readBack() {
  if (log.loading || log.atStart) return;
  log.loading = true;
  const generation = log.generation;
  const query = asQuery({ search: true });
  query.set("limit", PAGE);
  if (log.readFrom !== null) query.set("before", log.readFrom);
  try {
    const answer = await fetch(`${root.dataset.lines}?${query}`, { headers: { Accept: "application/json" } });
    if (answer.redirected) { toLogin(); return; }
    const data = answer.ok || answer.status === 400 ? await answer.json() : {};
    if (generation !== log.generation) return;
    if (!answer.ok) { complain(data.message || "The log could not be read just now."); return; }
    complain("");
    const first = log.readFrom === null;
    log.lines = data.lines.concat(log.lines);
    log.readFrom = data.first;
    log.atStart = data.done;
    if (first) log.upto = Math.max(data.upto, log.upto);
    const top = view.scrollTop;
    resize();
    if (first) toEnd();
    else scrollTo(top + data.lines.length * ROW);
    draw();
  } catch { // the server is away: the mark beside the filters says so, and the next connection reads again
    return;
  } finally {
    if (generation === log.generation) log.loading = false;
  }
  // a rare match: each answer says how far back it looked; go on until the view is full
  if (generation === log.generation && !log.atStart && log.lines.length * ROW < view.clientHeight) await readBack();
}

async function restart() {
  log.generation += 1;
  Object.assign(log, { lines: [], upto: 0, readFrom: null, atStart: false, loading: false, following: true, unseen: 0 });
  resize();
  draw();
  const generation = log.generation;
  await readBack();
  if (generation === log.generation && isOpen()) ask();
}

// History first: the socket then sends what comes after it. Asked before that, it would send the history again.
async function ask() {
  if (log.readFrom === null) await readBack();
  if (log.readFrom === null || !isOpen()) return;
  say({
    generation: log.generation, after: log.upto, ranks: filter.ranks, levels: levels(), search: filter.search, regex: filter.regex,
  });
}

function take(frame) {
  if (frame.error) complain(frame.error);
  if (frame.generation !== undefined && frame.generation !== log.generation) return;
  if (frame.lines?.length) add(frame.lines.filter((line) => line[0] > log.upto));
  if (frame.upto) log.upto = Math.max(log.upto, frame.upto);
  if (frame.lines) say({ ack: log.upto });
}

function add(lines) {
  if (!lines.length) return;
  log.lines.push(...lines);
  log.upto = lines[lines.length - 1][0];
  const over = log.following ? log.lines.length - MOST_LINES : 0;
  if (over > 0) { log.lines.splice(0, over); log.atStart = false; log.readFrom = log.lines[0][0]; }
  if (!log.following) log.unseen += lines.length;
  resize();
  if (log.following) toEnd();
  draw();
}

// --- showing ---

function resize() { space.style.height = `${log.lines.length * ROW}px`; }

function scrollTo(top) { view.scrollTop = top; lastTop = view.scrollTop; }

function toEnd() { scrollTo(view.scrollHeight); }

function draw() {
  const first = Math.max(0, Math.floor(view.scrollTop / ROW) - 20);
  const last = Math.min(log.lines.length, Math.ceil((view.scrollTop + view.clientHeight) / ROW) + 20);
  rows.style.transform = `translateY(${first * ROW}px)`;
  rows.replaceChildren(...log.lines.slice(first, last).map(row));
  root.toggleAttribute("data-at-start", log.atStart);
  nothing.hidden = log.lines.length > 0 || log.readFrom === null;
  if (!nothing.hidden) nothing.textContent = whyNothing();
  paused.hidden = log.following;
  if (!log.following) {
    const at = pausedAt.toISOString().slice(11, 19);
    const text = `View paused at ${at} UTC · ${log.unseen} new line${log.unseen === 1 ? "" : "s"} · jump to end`;
    if (paused.textContent !== text) paused.textContent = text;
  }
}

function whyNothing() {
  if (filter.ranks.length || filter.level || filter.search) return "No line fits this filter.";
  return state.ended ? "It ended without a line." : "No line yet. The first ones stand here as soon as a rank writes.";
}

function row([number, time, rank, stream, level, host, text]) {
  const line = document.createElement("div");
  line.className = `log-row ${(level || "").toLowerCase()}${stream === "s" || stream === "server" ? " server" : ""}`;
  line.dataset.number = number;
  if (rank !== null) line.dataset.rank = rank;
  if (level && new RegExp(`\\b${level}\\b`, "i").test(text)) line.classList.add("says-level");
  line.append(
    cell("no", number),
    cell("at", new Date(time * 1000).toISOString().slice(11, 23)),
    cell(rank === null ? "rank none" : "rank", rank === null ? "·" : rank),
    cell("host", host || "server"),
    textCell(text.replace(ANSI, "")),
  );
  return line;
}

function cell(name, text) {
  const part = document.createElement("span");
  part.className = name;
  part.textContent = text;
  return part;
}

function textCell(text) {
  const part = cell("text", "");
  const wanted = filter.regex ? "" : filter.search.toLowerCase();
  const at = wanted ? text.toLowerCase().indexOf(wanted) : -1;
  if (at < 0) { part.textContent = text; return part; }
  const mark = document.createElement("mark");
  mark.textContent = text.slice(at, at + wanted.length);
  part.append(text.slice(0, at), mark, text.slice(at + wanted.length));
  return part;
}

// --- acting ---

paused.addEventListener("click", follow);

function follow() {
  log.following = true;
  log.unseen = 0;
  toEnd();
  draw();
}

view.addEventListener("scroll", () => {
  const atEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - ROW;
  const up = view.scrollTop < lastTop;
  lastTop = view.scrollTop;
  if (atEnd && !log.following) { log.following = true; log.unseen = 0; }
  else if (up && !atEnd && log.following) { log.following = false; pausedAt = new Date(); }
  if (view.scrollTop < 40 * ROW) readBack();
  draw();
}, { passive: true });

let typing = null;
fields.search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => { change({ search: fields.search.value }); }, 300); });
fields.regex.addEventListener("change", () => change({ regex: fields.regex.checked }));
fields.level.addEventListener("change", () => change({ level: fields.level.value }));
fields.times.addEventListener("change", () => change({ times: fields.times.checked ? "utc" : "none" }));

view.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keysAreOn()) return;
  if (event.key === "f") follow();
});

function fill() {
  fields.level.value = filter.level;
  if (document.activeElement !== fields.search) fields.search.value = filter.search;
  fields.regex.checked = filter.regex;
  fields.times.checked = look.times !== "none";
  root.classList.toggle("hide-times", look.times === "none");
}

onFrame(take);
onOpen(() => ask());
onChange((names) => {
  fill();
  if (["ranks", "level", "search", "regex"].some((name) => names.has(name))) restart();
});
fill();
connect();
restart();
