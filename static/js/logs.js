// The log viewer. Lines have numbers: history is read backwards from a number, the socket sends what comes after one,
// and so the two join without gap or repeat. Only the rows in view exist in the page.

import { keysAreOn } from "./keys.js";
import { showConnection, spell } from "./live.js";

const ROW = 19;
const PAGE = 500;
const MOST_LINES = 100_000;
const STALE_AFTER_MS = 10_000;
const STALLED_AFTER_S = 10;
const LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const ANSI = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;

const root = document.getElementById("log");
const view = document.getElementById("log-view");
const space = view.querySelector(".log-space");
const rows = view.querySelector(".log-rows");
const paused = document.getElementById("log-paused");
const chips = root.querySelector(".ranks");
const nothing = document.getElementById("log-nothing");
const stateMark = document.getElementById("log-state");
const errorMark = document.getElementById("log-error");
const fields = {
  level: document.getElementById("log-level"),
  search: document.getElementById("log-search"),
  regex: document.getElementById("log-regex"),
  times: document.getElementById("log-times"),
};

const log = { lines: [], upto: 0, readFrom: null, atStart: false, following: true, unseen: 0, loading: false, generation: 0, ended: false };
let lastTop = 0;
let filter = fromAddress();
let socket = null;
let attempt = 0;
let lastWord = 0;
let pausedAt = null;

function fromAddress() {
  const query = new URLSearchParams(location.search);
  return {
    ranks: query.getAll("rank").map(Number).filter(Number.isInteger),
    level: query.get("level") || "",
    search: query.get("q") || "",
    regex: query.has("regex"),
  };
}

function toAddress() {
  const query = new URLSearchParams();
  for (const rank of filter.ranks) query.append("rank", rank);
  if (filter.level) query.set("level", filter.level);
  if (filter.search) query.set("q", filter.search);
  if (filter.regex) query.set("regex", "1");
  const text = query.toString();
  history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

const levels = () => (filter.level ? LEVELS.slice(LEVELS.indexOf(filter.level)) : []);

function complain(text) {
  errorMark.textContent = text || "";
  errorMark.hidden = !text;
}

// --- reading ---

async function readBack() {
  if (log.loading || log.atStart) return;
  log.loading = true;
  const generation = log.generation;
  const query = new URLSearchParams({ limit: PAGE, search: filter.search });
  if (log.readFrom !== null) query.set("before", log.readFrom);
  if (filter.regex) query.set("regex", "1");
  for (const rank of filter.ranks) query.append("rank", rank);
  for (const level of levels()) query.append("level", level);
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
  toAddress();
  log.generation += 1;
  Object.assign(log, { lines: [], upto: 0, readFrom: null, atStart: false, loading: false, following: true, unseen: 0 });
  resize();
  draw();
  const generation = log.generation;
  await readBack();
  if (generation === log.generation && socket?.readyState === WebSocket.OPEN) ask();
}

// History first: the socket then sends what comes after it. Asked before that, it would send the history again.
async function ask() {
  if (log.readFrom === null) await readBack();
  if (log.readFrom === null || socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({
    generation: log.generation, after: log.upto, ranks: filter.ranks, levels: levels(), search: filter.search, regex: filter.regex,
  }));
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/ws/tasks/${root.dataset.task}/logs`);
  socket.onopen = () => { attempt = 0; lastWord = Date.now(); ask(); };
  socket.onmessage = (message) => { lastWord = Date.now(); take(JSON.parse(message.data)); };
  socket.onclose = (event) => {
    if (event.code === 4401) { toLogin(); return; }
    attempt += 1;
    setTimeout(connect, Math.min(10_000, 300 * 2 ** attempt) * (0.5 + Math.random() / 2));
  };
}

function toLogin() { location.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`; }

function take(frame) {
  if (frame.error) complain(frame.error);
  if (frame.ranks) showRanks(frame.ranks);
  if (frame.generation !== undefined && frame.generation !== log.generation) return;
  if (frame.lines?.length) add(frame.lines.filter((line) => line[0] > log.upto));
  if (frame.upto) log.upto = Math.max(log.upto, frame.upto);
  if (frame.last !== undefined) log.ended = frame.last;
  if (frame.lines) socket.send(JSON.stringify({ ack: log.upto }));
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
  return log.ended ? "It ended without a line." : "No line yet. The first ones stand here as soon as a rank writes.";
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

// A rank that says nothing while others go on is marked: it may hang.
const isStalled = (age, ranks) => !log.ended && age >= STALLED_AFTER_S && ranks.some((other) => other.rank >= 0 && other.age < STALLED_AFTER_S / 3);

function showRanks(ranks) {
  for (const { rank, age, host } of ranks) {
    let chip = chips.querySelector(`[data-rank="${rank}"]`);
    if (!chip) {
      chip = document.createElement("button");
      chip.className = "pill";
      chip.dataset.rank = rank;
      chip.append(document.createElement("b"), document.createElement("small"));
      chip.firstChild.textContent = rank < 0 ? "no rank" : rank;
      const after = [...chips.children].find((other) => Number(other.dataset.rank) > rank);
      chips.insertBefore(chip, after || null);
    }
    const stalled = rank >= 0 && isStalled(age, ranks);
    chip.classList.toggle("stalled", stalled);
    chip.title = rank < 0 ? "Lines outside any rank: only these" : `Only rank ${rank} on ${host}; with Ctrl or Shift it is added`;
    chip.lastChild.textContent = log.ended ? "" : `${stalled ? "silent " : ""}${age < 10 ? `${age.toFixed(1)} s` : spell(age)}`;
  }
  markChips();
}

function markChips() {
  for (const chip of chips.children) {
    const on = chip.dataset.rank === "all" ? !filter.ranks.length : filter.ranks.includes(Number(chip.dataset.rank));
    chip.setAttribute("aria-pressed", on);
  }
}

function choose(rank, also) {
  if (rank === "all") filter.ranks = [];
  else if (!also) filter.ranks = filter.ranks.length === 1 && filter.ranks[0] === rank ? [] : [rank];
  else if (filter.ranks.includes(rank)) filter.ranks = filter.ranks.filter((other) => other !== rank);
  else filter.ranks = [...filter.ranks, rank];
  markChips();
  restart();
}

// --- acting ---

chips.addEventListener("click", (event) => {
  const chip = event.target.closest("[data-rank]");
  if (chip) choose(chip.dataset.rank === "all" ? "all" : Number(chip.dataset.rank), event.ctrlKey || event.shiftKey || event.metaKey);
});
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
fields.search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => { filter.search = fields.search.value; restart(); }, 300); });
fields.regex.addEventListener("change", () => { filter.regex = fields.regex.checked; if (filter.search) restart(); });
fields.level.addEventListener("change", () => { filter.level = fields.level.value; restart(); });
fields.times.addEventListener("change", () => root.classList.toggle("hide-times", !fields.times.checked));

view.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keysAreOn()) return;
  if (event.key === "f") follow();
  else if (event.key === "a") choose("all");
  else if (/^\d$/.test(event.key)) choose(Number(event.key), false);
});

setInterval(() => {
  const age = Date.now() - lastWord;
  if (!socket || socket.readyState !== WebSocket.OPEN) showConnection(stateMark, lastWord ? "Reconnecting" : "Connecting", "waiting", lastWord ? age : null);
  else if (log.ended) showConnection(stateMark, "Complete", "rest", null);
  else if (age > STALE_AFTER_MS) showConnection(stateMark, "Stale", "failed", age);
  else showConnection(stateMark, "Live", "running", null);
}, 500);

fields.level.value = filter.level;
fields.search.value = filter.search;
fields.regex.checked = filter.regex;
markChips();
connect();
restart();
