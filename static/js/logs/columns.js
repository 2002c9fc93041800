// Ranks side by side: a column each, aligned in time. It opens at the end and follows; scrolling up pauses and reads what
// was before. Filters and address are those of the log (logs/state.js).

import { plain } from "./ansi.js";
import { columnHead, sayHead } from "./column_heads.js";
import { rowElement } from "./column_rows.js";
import { align, rowOf } from "./columns_grid.js";
import { Refused, ask } from "./fetch.js";
import { connect, onFrame, onOpen, onStatus, say } from "./live.js";
import { showBox } from "./rank_box.js";
import { asQuery, change, filter, levels, onChange } from "./state.js";
import { clock } from "./times.js";
import { sentence, write } from "./rank_look.js";

const ROW = 19;
const PAGE = 600;
const MOST_LINES = 20_000;
const [MOST_COLUMNS, USUAL_COLUMNS] = [8, 4];
const SPARE_ROWS = 20;
const NEAR_TOP_ROWS = 60;
const REST_FACTOR = 10; // in a flood rows are made anew for a tenth of the time at most

const root = document.getElementById("log");
const view = document.getElementById("log-view");
const [heads, space, list] = ["column-heads", "column-space", "column-rows"].map((id) => document.getElementById(id));
const [paused, nothing, errors, note, detail] = ["log-paused", "log-nothing", "log-error", "column-note", "column-line"].map((id) => document.getElementById(id));
const fields = { level: document.getElementById("log-level"), search: document.getElementById("log-search"), regex: document.getElementById("log-regex") };

let columns = []; // ranks from left to right
let entries = new Map(); // rank -> what the status says
let lines = [];
let rows = [];
let log = fresh(0);
let cursor = null; // the number of the line that a person looks at
let lastTop = 0;
let lastHeight = 0; // of the view
let drawing = 0;
let aligning = 0;
let alignAgainAt = 0;

function fresh(generation) {
  return { generation, readFrom: null, upto: 0, atStart: false, loading: false, following: true, unseen: 0, pausedAt: null };
}

// --- which ranks ---

function wanted() {
  if (filter.ranks.length) return filter.ranks.filter((rank) => rank < 10_000).slice(0, MOST_COLUMNS);
  return [...entries.keys()].filter((rank) => rank >= 0).slice(0, USUAL_COLUMNS);
}

function settle() {
  const next = wanted();
  const query = new URLSearchParams(location.search);
  document.getElementById("column-log").href = `${root.dataset.log}${query.size ? `?${query}` : ""}`;
  if (next.join() === columns.join()) return false;
  columns = next;
  view.style.setProperty("--columns", Math.max(1, columns.length));
  heads.replaceChildren(heads.firstElementChild, ...columns.map((rank) => columnHead(rank, (other) => entries.get(other), without)));
  return true;
}

function without(rank) {
  const ranks = columns.filter((other) => other !== rank);
  change({ expression: ranks.join().replace("-1", "none"), ranks });
}

// What is left out, and which of the shown ranks stand.
function sayNote() {
  const tooMany = filter.ranks.length > MOST_COLUMNS ? [`The first ${MOST_COLUMNS} of ${filter.ranks.length} ranks are shown; select fewer to see others.`] : [];
  const marks = columns.map((rank) => entries.get(rank)?.mark).filter(Boolean).map(sentence);
  note.hidden = !tooMany.length && !marks.length;
  note.classList.toggle("failed-text", marks.length > 0);
  write(note, [...tooMany, ...marks].join(" "));
}

onStatus((ranks) => {
  entries = new Map(ranks.map((entry) => [entry.rank, entry]));
  showBox(true, ranks.filter(({ rank }) => rank >= 0));
  if (!columns.length && settle()) restart();
  for (const cell of heads.querySelectorAll(".column-head")) if (entries.has(Number(cell.dataset.rank))) sayHead(cell, entries.get(Number(cell.dataset.rank)));
  sayNote();
  if (!lines.length) draw();
});

// --- reading ---

function query() {
  const parameters = asQuery({ search: true });
  parameters.set("rank", columns.join());
  return parameters;
}

async function readBack() {
  if (log.loading || log.atStart || !columns.length) return;
  const mine = log;
  mine.loading = true;
  const parameters = query();
  parameters.set("limit", PAGE);
  if (mine.readFrom !== null) parameters.set("before", mine.readFrom);
  let found;
  try {
    found = await ask(parameters);
    complain("");
  } catch (error) { // else the server is away: the mark beside the filters says so, and the next connection reads again
    if (error instanceof Refused) complain(error.message);
    return;
  } finally {
    mine.loading = false;
  }
  if (mine !== log) return;
  if (log.readFrom === null) log.upto = Math.max(log.upto, found.upto);
  log.readFrom = found.first;
  log.atStart = found.done;
  lines.push(...found.lines);
  realign();
  // a rare match: each answer says how far back it looked; go on until the view is full
  if (!log.atStart && rows.length * ROW < view.clientHeight) await readBack();
}

async function restart() {
  log = fresh(log.generation + 1);
  lines = [];
  rows = [];
  clearTimeout(aligning);
  aligning = 0;
  point(null);
  draw();
  await listen();
}

// History first: the socket then sends what comes after it.
async function listen() {
  const mine = log;
  if (log.readFrom === null) await readBack();
  if (mine !== log || log.readFrom === null) return;
  say({ generation: log.generation, after: log.upto, ranks: columns, levels: levels(), search: filter.search, regex: filter.regex });
}

onOpen(listen);

onFrame((frame) => {
  if (frame.generation !== log.generation) return;
  if (frame.error) complain(frame.error);
  if (!frame.lines) return;
  const news = frame.lines.filter((line) => line[0] > log.upto);
  log.upto = Math.max(log.upto, frame.upto ?? 0);
  if (!log.following) log.unseen += news.length;
  lines.push(...news);
  if (news.length) aligning ||= setTimeout(realign, Math.max(0, alignAgainAt - Date.now()));
  else later();
  say({ ack: log.upto });
});

/** Put all lines into rows, with the view where it was. */
function realign() {
  clearTimeout(aligning);
  aligning = 0;
  const begun = performance.now();
  const [onTop, off] = topLine();
  if (log.following && lines.length > MOST_LINES) drop();
  rows = align(lines, columns);
  space.style.height = `${rows.length * ROW}px`;
  if (log.following) toEnd();
  else if (onTop !== null) scroll(Math.max(0, rowOf(rows, onTop)) * ROW + off);
  later();
  alignAgainAt = Date.now() + REST_FACTOR * (performance.now() - begun);
}

function drop() {
  lines.sort((one, other) => one[0] - other[0]).splice(0, lines.length - MOST_LINES * 0.75);
  log.readFrom = lines[0][0];
  log.atStart = false;
}

function complain(text) {
  errors.textContent = text;
  errors.hidden = !text;
}

// --- showing ---

function topLine() {
  const at = Math.floor(view.scrollTop / ROW);
  const line = rows[at]?.cells.find(Boolean);
  return [line ? line[0] : null, view.scrollTop - at * ROW];
}

function scroll(top) { view.scrollTop = top; lastTop = view.scrollTop; }
const toEnd = () => scroll(view.scrollHeight);
const later = () => { drawing ||= requestAnimationFrame(draw); };

function draw() {
  cancelAnimationFrame(drawing);
  drawing = 0;
  const first = Math.max(0, Math.floor(view.scrollTop / ROW) - SPARE_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.scrollTop + view.clientHeight) / ROW) + SPARE_ROWS);
  space.style.height = `${rows.length * ROW}px`;
  list.style.transform = `translateY(${first * ROW}px)`;
  list.replaceChildren(...rows.slice(first, last).map((row) => rowElement(row, cursor)));
  root.toggleAttribute("data-at-start", log.atStart);
  nothing.hidden = rows.length > 0 || log.loading;
  if (!nothing.hidden) write(nothing, columns.length ? "These ranks have no matching lines." : entries.size ? "No rank is selected." : "No rank has written yet.");
  paused.hidden = log.following;
  if (!log.following) write(paused, `View paused at ${log.pausedAt} UTC · ${log.unseen} new line${log.unseen === 1 ? "" : "s"} · jump to end`);
}

// --- one line ---

function point(line) {
  cursor = line ? line[0] : null;
  detail.hidden = !line;
  if (line) {
    const [link, said, text] = detail.children;
    link.textContent = `line ${line[0]}`;
    link.href = `${root.dataset.log}#L${line[0]}`;
    said.textContent = `${line[2] === null ? "no rank" : `rank ${line[2]}`} on ${line[5]}, ${clock(line[1], "utc")} UTC`;
    text.textContent = plain(line[6]);
  }
}

function move(key) {
  const at = cursor === null ? -1 : rowOf(rows, cursor);
  if (at < 0) {
    const visible = rows.slice(0, Math.floor((view.scrollTop + view.clientHeight) / ROW) - 1).reverse().find(Boolean);
    return visible?.cells.find(Boolean) ?? null;
  }
  const column = rows[at].cells.findIndex((line) => line?.[0] === cursor);
  if (key === "ArrowUp") return rows.slice(0, at).reverse().find(({ cells }) => cells[column])?.cells[column];
  if (key === "ArrowDown") return rows.slice(at + 1).find(({ cells }) => cells[column])?.cells[column];
  const aside = key === "ArrowRight" ? column + 1 : column - 1;
  const near = (distance) => rows[at - distance]?.cells[aside] ?? rows[at + distance]?.cells[aside];
  for (let distance = 0; distance < 200; distance += 1) if (near(distance)) return near(distance);
  return null;
}

function show(line) {
  point(line);
  const top = rowOf(rows, line[0]) * ROW;
  const [over, under] = [view.scrollTop, view.scrollTop + view.clientHeight - heads.offsetHeight - 2 * ROW];
  if (top < over) view.scrollTop = top;
  else if (top > under) view.scrollTop += top - under;
  list.querySelector(".pointed")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  draw();
}

// --- acting ---

paused.addEventListener("click", () => { log.following = true; log.unseen = 0; toEnd(); draw(); });

view.addEventListener("scroll", () => {
  if (view.clientHeight !== lastHeight) return; // the browser moved the bar of a view that grew: nobody scrolled
  const atEnd = view.scrollTop + view.clientHeight >= view.scrollHeight - ROW;
  const up = view.scrollTop < lastTop;
  lastTop = view.scrollTop;
  if (atEnd) Object.assign(log, { following: true, unseen: 0 });
  else if (up && log.following) Object.assign(log, { following: false, pausedAt: new Date().toISOString().slice(11, 19) });
  if (up && view.scrollTop < NEAR_TOP_ROWS * ROW) readBack();
  later();
}, { passive: true });

view.addEventListener("click", (event) => {
  const cell = event.target.closest(".column-cell[data-number]");
  if (!cell || !getSelection().isCollapsed) return;
  point(lines.find((line) => line[0] === Number(cell.dataset.number)));
  draw();
});

view.addEventListener("keydown", (event) => {
  if (event.target !== view || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { point(null); draw(); return; }
  if (!/^Arrow(Left|Right|Up|Down)$/.test(event.key) || (cursor === null && /Up|Down/.test(event.key))) return;
  event.preventDefault();
  const line = move(event.key);
  if (line) show(line);
});

let typing = null;
fields.search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => change({ search: fields.search.value }), 300); });
fields.regex.addEventListener("change", () => change({ regex: fields.regex.checked }));
fields.level.addEventListener("change", () => change({ level: fields.level.value }));

function showFields() {
  if (document.activeElement !== fields.search) fields.search.value = filter.search;
  fields.regex.checked = filter.regex;
  fields.level.value = filter.level;
}

onChange((names) => {
  showFields();
  const others = settle();
  sayNote();
  if (others || ["level", "search", "regex"].some((name) => names.has(name))) restart();
});

new ResizeObserver(() => {
  [lastHeight, lastTop] = [view.clientHeight, view.scrollTop];
  if (log.following) toEnd();
  later();
}).observe(view);
showFields();
settle();
connect();
if (columns.length) restart();
