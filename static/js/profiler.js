// The Profiler page of a trial: what its hosts measured, over time, and what its ranks timed, over steps (profiler_steps.js).
// Only charts in view are mounted; one request at a time brings what they lack.

import { watched } from "./chart_panel.js";
import { follow, onKey } from "./chart_window.js";
import { SamplesPanel } from "./profiler_panel.js";
import { bring, bringDetail, lacksDetail } from "./profiler_samples.js";
import { toggled } from "./page_state.js";
import { address, change, onChange, section, state, timeAxis } from "./profiler_state.js";
import "./profiler_steps.js";

const EVERY_MS = 2_000;
const CHOICE_EVERY_MS = 5_000; // hosts and GPUs join seldom
const AGAIN_MS = 3_000;
const samples = document.getElementById("samples");
const choice = document.getElementById("profiler-choice");
const axis = document.getElementById("profiler-x");
const whole = document.getElementById("profiler-reset");
const panels = new Map(); // id -> panel
let asking = null; // of the request on its way
let isHeld = false; // a button of the mouse is down: nothing changes beneath it

// --- which charts there are ---

function list() {
  const { charts, hosts } = JSON.parse(document.getElementById("profiler-charts").textContent);
  const wanted = new Set(charts.map(({ id }) => id));
  for (const [id, panel] of panels) if (!wanted.has(id)) { watching.remove(panel); panels.delete(id); }
  const [added, places] = [[], new Map()];
  for (const chart of charts) {
    const row = samples.querySelector(`[data-charts="${chart.group}"]`);
    let panel = panels.get(chart.id);
    if (!panel) {
      panel = new SamplesPanel(section.dataset.at, chart, hosts);
      panels.set(chart.id, panel);
      added.push(panel);
    } else panel.update(chart, hosts);
    const at = places.get(row) ?? 0; // in the server's order; what stands there already is not moved
    if (row.children[at] !== panel.element) row.insertBefore(panel.element, row.children[at] ?? null);
    places.set(row, at + 1);
  }
  for (const row of samples.querySelectorAll("[data-section]")) {
    row.hidden = !charts.some(({ group }) => group === row.dataset.section);
    document.querySelector(`[data-jump="${row.dataset.section}"]`).hidden = row.hidden;
  }
  for (const [row, count] of places) {
    row.parentElement.classList.toggle("alone", count === 1);
    row.dataset.each = new Set(charts.filter(({ group, each }) => group === row.dataset.charts && each).map(({ each }) => each)).size;
  }
  document.getElementById("samples-empty").hidden = charts.length > 0;
  watching.add(added);
}

const watching = watched({ onSeen: (panel) => show(panel), onMoved: () => load() });

/** First and last time of what is known: all charts share it. */
function span() {
  const lines = [...panels.values()].flatMap(({ base }) => (base ? [...base.values()] : []));
  return [Math.min(...lines.map(({ x }) => x[0])), Math.max(...lines.map(({ last }) => last))];
}

async function show(panel) {
  await panel.draw(span());
  const others = () => [...panels.values()].filter((each) => each.isDrawn && each.place.layout).map((each) => each.place);
  if (panel.isDrawn) follow(panel.place, others, timeAxis);
}

let showing = 0;
async function showAll() {
  const mine = showing += 1;
  for (const panel of panels.values()) {
    if (!panel.isInView) continue;
    if (mine !== showing) return; // a newer look of all of them is on its way
    await show(panel);
    await new Promise(requestAnimationFrame); // the page can be used between two charts
  }
}

// --- what they lack ---

async function load() {
  if (asking || isHeld) return;
  const shown = [...panels.values()].filter((panel) => panel.isInView);
  const bases = shown.filter((panel) => !panel.base || panel.isBehind);
  const window = { from: state.from, to: state.to };
  const isStale = ({ detail }) => detail?.from !== window.from || detail?.to !== window.to;
  const hasWindow = window.from !== null || window.to !== null;
  const details = hasWindow ? shown.filter((panel) => panel.base && isStale(panel) && lacksDetail(panel)) : [];
  if (!bases.length && !details.length) return;
  const mine = asking = new AbortController();
  let brought = details;
  try {
    if (bases.length) brought = await bring(section.dataset.at, bases, mine.signal);
    else await bringDetail(section.dataset.at, details, window, mine.signal);
  } catch (error) {
    if (mine.signal.aborted) return;
    for (const panel of bases) if (!panel.base) panel.points.textContent = `${error.message} Asking again.`;
    setTimeout(() => { asking = null; load(); }, AGAIN_MS);
    return;
  }
  if (asking !== mine) return;
  asking = null;
  if (bases.length) for (const panel of brought) panel.isBehind = false;
  for (const panel of brought) await show(panel);
  load();
}

let behindTimer = null;
function fallBehind() {
  behindTimer ??= setTimeout(() => {
    behindTimer = null;
    for (const panel of panels.values()) panel.isBehind = true;
    load();
  }, EVERY_MS);
}

// --- the choice above ---

let choiceTimer = null;
function refreshChoice(soon) {
  if (soon) { clearTimeout(choiceTimer); choiceTimer = null; }
  choiceTimer ??= setTimeout(() => {
    choiceTimer = null;
    htmx.ajax("GET", address("choice"), { source: choice, target: choice, swap: "innerHTML" });
  }, soon ? 0 : CHOICE_EVERY_MS);
}

choice.addEventListener("htmx:afterSwap", () => { filterHosts(); list(); });
samples.addEventListener("wake", () => { fallBehind(); refreshChoice(false); });
choice.addEventListener("click", ({ target }) => {
  const { host, gpu, all } = target.closest("[data-host], [data-gpu], [data-all]")?.dataset ?? {};
  if (host !== undefined) change({ host: toggled(state.host, host) });
  else if (gpu !== undefined) change({ gpu: toggled(state.gpu, gpu) });
  else if (all !== undefined) change({ [all]: [] });
});

let sought = "";
function filterHosts() {
  const field = document.getElementById("profiler-host-search");
  if (!field) return;
  if (field.value !== sought && document.activeElement !== field) field.value = sought;
  const words = field.value.trim().toLowerCase();
  for (const chip of choice.querySelectorAll("[data-host]")) chip.hidden = Boolean(words) && !chip.dataset.host.toLowerCase().includes(words) && chip.getAttribute("aria-pressed") !== "true";
}
choice.addEventListener("input", ({ target }) => { if (target.id === "profiler-host-search") { sought = target.value; filterHosts(); } });

function showControls() {
  axis.value = state.x;
  whole.disabled = state.from === null && state.to === null;
}
axis.addEventListener("change", () => change({ x: axis.value }));
whole.addEventListener("click", () => timeAxis.choose(null, null));

onChange((names) => {
  showControls();
  if (names.has("host") || names.has("gpu")) refreshChoice(true);
  if (["x", "from", "to"].some((name) => names.has(name))) { load(); showAll(); }
});

samples.addEventListener("keydown", (event) => { if (event.target.classList.contains("chart")) onKey(event, timeAxis); });
samples.addEventListener("pointerdown", () => { isHeld = true; });
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { isHeld = false; load(); });
document.addEventListener("themechange", showAll);

showControls();
list();
