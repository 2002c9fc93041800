// The Metrics page of a trial: charts of which only those in view are mounted, and a drawer with a table that the server draws.

import "./state.js";
import { loader } from "../charts/loading.js";
import { watched } from "../charts/panel.js";
import { follow, onKey } from "../charts/window.js";
import { isSingleKey } from "../frame.js";
import { bring, bringDetail, lacksDetail } from "./curves.js";
import { Panel } from "./panel.js";
import { address, change, onChange, state } from "./state.js";
import { axis, showWindow } from "./zoom.js";
import { toggled } from "../page_state.js";

const TABLE_EVERY_MS = 2_000;
const SMOOTHED_EVERY_MS = 5_000; // an average is worked out anew over all points
const TYPING_MS = 200;
const section = document.getElementById("charts");
const table = document.getElementById("metric-table");
const field = (name) => document.getElementById(`metric-${name}`);
const panels = () => [...section.children].map((element) => element.panel);

// --- which charts there are ---

function list() {
  const named = new Map(panels().map((panel) => [panel.name, panel]));
  const wanted = JSON.parse(document.getElementById("metric-charts")?.textContent ?? "[]");
  const all = wanted.map((chart) => {
    const panel = named.get(chart.name) ?? new Panel(section.dataset.at, chart, pin);
    panel.update(chart);
    named.delete(chart.name);
    return panel;
  });
  for (const panel of named.values()) watching.remove(panel);
  all.forEach((panel, index) => {
    if (section.children[index] !== panel.element) section.insertBefore(panel.element, section.children[index] ?? null);
  });
  watching.add(all);
}

const watching = watched({ onSeen: (panel) => show(panel), onMoved: () => load() });

async function show(panel) {
  await panel.draw();
  if (panel.isDrawn) follow(panel.place, () => panels().filter((each) => each.isDrawn && each.place.layout).map((each) => each.place), axis);
}

const { load, showAll, forget, fallBehind } = loader({
  section, state, panels, show, lacksDetail,
  bring: async (some, signal) => { await bring(section.dataset.at, some, signal); return some; },
  bringDetail: (some, window, signal) => bringDetail(section.dataset.at, some, window, signal),
});

// --- the table ---

let tableTimer = null;
function refreshTable(soon) {
  if (soon) { clearTimeout(tableTimer); tableTimer = null; }
  tableTimer ??= setTimeout(() => {
    tableTimer = null;
    htmx.ajax("GET", address("table"), { source: table, target: table, swap: "innerHTML" });
  }, soon ? 0 : TABLE_EVERY_MS);
}

// A pin is the user's, on all trials of the project; one that a link brought is the address's.
function pin({ name, isPinned }) {
  if (isPinned && state.pin.includes(name)) change({ pin: toggled(state.pin, name) });
  // From a source of its own: of those that wait behind a request of one source, htmx keeps the last alone, a refresh.
  htmx.ajax("POST", address("table").replace("?", "/pins?"), { source: section, target: table, swap: "innerHTML", values: { name, pinned: !isPinned } });
}

table.addEventListener("htmx:afterSwap", list);
table.addEventListener("wake", () => { refreshTable(false); fallBehind(state.smooth ? SMOOTHED_EVERY_MS : 0); });
table.addEventListener("change", ({ target }) => {
  if (target.dataset.tick !== undefined) change({ m: toggled(state.m, target.dataset.tick) });
});
table.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { pin: pinned, prefix, page, untick } = event.target.closest("[data-pin], [data-prefix], [data-page], [data-untick]")?.dataset ?? {};
  if (pinned === undefined && prefix === undefined && page === undefined && untick === undefined) return;
  event.preventDefault();
  if (pinned !== undefined) pin({ name: pinned, isPinned: event.target.closest("[data-pin]").getAttribute("aria-pressed") === "true" });
  else if (prefix !== undefined) change({ prefix, page: 1 });
  else if (page !== undefined) change({ page: Number(page) });
  else change({ m: [] });
});

const opener = field("open");
const openTable = () => change({ table: !state.table });
opener.addEventListener("click", openTable);
document.addEventListener("keydown", (event) => { if (event.key === "t" && isSingleKey(event)) openTable(); });

// --- the controls above ---

function showControls() {
  opener.setAttribute("aria-expanded", state.table);
  section.parentElement.classList.toggle("opened", state.table);
  if (document.activeElement !== field("search")) field("search").value = state.q;
  field("x").value = state.x;
  field("log").checked = state.log;
  field("smooth").value = state.smooth;
  field("smooth").parentElement.querySelector("output").textContent = state.smooth ? state.smooth.toFixed(2) : "off";
  showWindow();
}

let typing = null;
const whenStill = (act) => { clearTimeout(typing); typing = setTimeout(act, TYPING_MS); };
field("search").addEventListener("input", () => whenStill(() => change({ q: field("search").value.trim(), page: 1 })));
field("x").addEventListener("change", () => change({ x: field("x").value, from: null, to: null }));
field("log").addEventListener("change", () => change({ log: field("log").checked }));
field("smooth").addEventListener("input", () => {
  field("smooth").parentElement.querySelector("output").textContent = Number(field("smooth").value) ? Number(field("smooth").value).toFixed(2) : "off";
  whenStill(() => change({ smooth: Number(field("smooth").value) }));
});
document.getElementById("metric-view").addEventListener("submit", (event) => event.preventDefault());

onChange((names) => {
  showControls();
  for (const panel of panels()) panel.mark();
  if (["q", "prefix", "page", "m", "pin"].some((name) => names.has(name))) refreshTable(true);
  if (names.has("x") || names.has("smooth")) forget();
  else if (names.has("from") || names.has("to") || names.has("log")) { load(); showAll(); }
  if (names.has("expand") && state.expand) document.getElementById(`chart-${state.expand}`)?.scrollIntoView({ block: "nearest" });
});

section.addEventListener("keydown", (event) => {
  if (!event.target.classList.contains("chart")) return;
  if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) pin(event.target.panel);
  else onKey(event, axis);
});

showControls();
list();
