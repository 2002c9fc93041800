// The charts over steps of the Profiler page: one answer of the server has all of them, and one window is for all.

import { ChartPanel, tableOf, watched } from "../charts/panel.js";
import { put } from "../charts/plot.js";
import { follow, onKey } from "../charts/window.js";
import { settle } from "./fold.js";
import { figures } from "./step_plot.js";
import { change, onChange, section, state, stepAxis } from "./state.js";

const EVERY_MS = 3_000; // and as long as a tenth of the time, the server may be busy with it
const AGAIN_MS = 3_000;
const place = document.getElementById("steps");
const panels = new Map(); // id -> panel
const choice = document.getElementById("profiler-rank");
const whole = document.getElementById("profiler-steps-reset");

class StepPanel extends ChartPanel {
  constructor(figure) {
    super(figure.name, { id: figure.id, help: "profiler-help" });
    this.element.classList.toggle("expanded", Boolean(figure.isWide));
  }

  update(figure) {
    this.figure = figure;
    this.points.textContent = figure.note ?? "";
    this.place.setAttribute("aria-label", figure.sentence);
    if (figure.height) this.place.style.height = `${figure.height}px`;
    if (!this.values.hidden) this.showValues(true);
  }

  table() { return tableOf(this.figure.caption, this.figure.heads, this.figure.rows); }

  async draw() {
    if (!this.isInView) return;
    this.isDrawn = true;
    await put(this.place, this.figure.traces(this.place), this.figure.layout(this.place));
    const others = () => [...panels.values()].filter((each) => each.isDrawn && each.place.layout && each.figure.id !== "ranks").map((each) => each.place);
    if (this.isDrawn) follow(this.place, this.figure.id === "ranks" ? () => [] : others, stepAxis);
  }
}

const watching = watched({ onSeen: (panel) => panel.draw(), onMoved: () => {} });

function show(answer) {
  const whose = state.rank === "" ? "mean of all ranks" : `rank ${state.rank}`;
  const wanted = figures(answer, whose);
  const ids = new Set(wanted.map(({ id }) => id));
  for (const [id, panel] of panels) if (!ids.has(id)) { watching.remove(panel); panels.delete(id); }
  const added = [];
  for (const figure of wanted) {
    let panel = panels.get(figure.id);
    if (!panel) {
      panel = new StepPanel(figure);
      panels.set(figure.id, panel);
      added.push(panel);
    }
    panel.update(figure);
    const row = place.querySelector(`[data-charts="${figure.section}"]`);
    if (panel.element.parentElement !== row) row.append(panel.element);
  }
  tell(answer);
  if (added.length) watching.add(added);
  for (const panel of panels.values()) panel.draw();
}

// What the charts say in words, and what is to be done where there are none.
function tell(answer) {
  const nothing = !answer.edges.length;
  for (const row of place.querySelectorAll("[data-section]")) {
    row.hidden = nothing;
    document.querySelector(`[data-jump="${row.dataset.section}"]`).hidden = nothing;
  }
  document.getElementById("steps-empty").hidden = !nothing;
  settle(!nothing);
  document.getElementById("stack-empty").hidden = nothing || Boolean(answer.stack);
  document.getElementById("rates-empty").hidden = nothing || answer.rates.length > 0;
  const words = answer.slow ? answer.slow.sentences : answer.why_not ? [answer.why_not] : [];
  const [top, told] = ["slow-told", "slow-words"].map((id) => document.getElementById(id));
  if (told.textContent !== words.join(" ")) top.textContent = told.textContent = words.join(" ");
  top.hidden = !answer.slow?.is_slow;
  told.hidden = !top.hidden; // it is said once
  const ranks = [["", "mean of all ranks"], ...answer.ranks.map(({ rank, host }) => [`${rank}`, `rank ${rank}, ${host}`])];
  if (!ranks.some(([value]) => value === state.rank)) ranks.push([state.rank, `rank ${state.rank}`]);
  if (choice.options.length !== ranks.length) choice.replaceChildren(...ranks.map(([value, text]) => new Option(text, value)));
  choice.value = state.rank;
  whole.disabled = state.first === null && state.last === null;
}

// --- asking ---

let asking = null;
let isBehind = false;
let due = 0;
let timer = null;
let shown = null;

async function load() {
  const mine = asking = new AbortController();
  isBehind = false;
  const query = new URLSearchParams();
  for (const name of ["rank", "first", "last"]) if (state[name] !== null && state[name] !== "") query.set(name, state[name]);
  const begun = performance.now();
  try {
    const answer = await fetch(`${section.dataset.at}/timings?${query}`, { headers: { Accept: "application/json" }, signal: mine.signal });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.message ?? `The server answered ${answer.status}.`);
    shown = found;
  } catch (error) {
    if (mine.signal.aborted) return;
    isBehind = true;
    if (!shown) document.getElementById("steps-told").textContent = `${error.message} Retrying.`;
    asking = null;
    due = Date.now() + AGAIN_MS;
    schedule();
    return;
  }
  asking = null;
  due = Date.now() + Math.max(EVERY_MS, 10 * (performance.now() - begun));
  document.getElementById("steps-told").textContent = "";
  if (!isHeld) show(shown);
  if (isBehind) schedule();
}

function schedule() {
  isBehind = true;
  if (asking || timer) return;
  timer = setTimeout(() => { timer = null; load(); }, Math.max(0, due - Date.now()));
}

function now() {
  asking?.abort();
  asking = null;
  clearTimeout(timer);
  timer = null;
  load();
}

let isHeld = false; // a button of the mouse is down: nothing changes beneath it
place.addEventListener("pointerdown", () => { isHeld = true; });
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { if (isHeld) { isHeld = false; if (shown) show(shown); } });
place.addEventListener("wake", schedule);
place.addEventListener("keydown", (event) => { if (event.target.classList.contains("chart")) onKey(event, stepAxis); });
choice.addEventListener("change", () => change({ rank: choice.value }));
whole.addEventListener("click", () => stepAxis.choose(null, null));
document.addEventListener("themechange", () => { if (shown) show(shown); });
onChange((names) => { if (["rank", "first", "last"].some((name) => names.has(name))) now(); });

load();
