// The Profiler page of a trial: what its hosts measured, over time, and what its ranks timed, over steps (profiler/steps.js).
// Only charts in view are mounted.

import { loader } from "../charts/loading.js";
import { watched } from "../charts/panel.js";
import { follow, onKey } from "../charts/window.js";
import { SamplesPanel } from "./panel.js";
import { bring, bringDetail, lacksDetail } from "./samples.js";
import { toggled } from "../page_state.js";
import { address, change, onChange, section, state, timeAxis } from "./state.js";
import "./steps.js";

const EVERY_MS = 2_000;
const CHOICE_EVERY_MS = 5_000; // hosts and GPUs join seldom
const samples = document.getElementById("samples");
const choice = document.getElementById("profiler-choice");
const axis = document.getElementById("profiler-x");
const whole = document.getElementById("profiler-reset");
const panels = new Map(); // id -> panel

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
  document.getElementById("system-told").textContent = `${charts.length || "no"} chart${charts.length === 1 ? "" : "s"}`;
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

const { load, showAll, fallBehind } = loader({
  section: samples, state, panels: () => [...panels.values()], show, lacksDetail,
  bring: (some, signal) => bring(section.dataset.at, some, signal),
  bringDetail: (some, window, signal) => bringDetail(section.dataset.at, some, window, signal),
});

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
samples.addEventListener("wake", () => { fallBehind(EVERY_MS); refreshChoice(false); });
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

showControls();
list();
