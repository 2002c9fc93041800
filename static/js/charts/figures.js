// Draws the figures of a section with data-figures, keeps them fresh, and follows the theme. Only charts in view are mounted.

import { plotly } from "./plot.js";
import { aroundConstant, literal, named, themed } from "./theme.js";

const section = document.querySelector("[data-figures]");
let timer = null;
let isAsking = false;
const HOVERS = matchMedia("(hover: hover)").matches; // without a pointer the buttons would always cover the curves

function laidOut(figure) {
  return {
    ...themed(figure.layout),
    title: undefined, // the panel's heading says it
    annotations: figure.layout.annotations?.map((each) => ({ ...each, text: literal(each.text) })),
    margin: { l: 52, r: figure.layout.margin?.r ?? 8, t: 8, b: 40 },
    height: undefined,
  };
}

const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.inView = entry.isIntersecting;
    if (entry.isIntersecting) draw(entry.target);
  }
});

// Panels that come later make the earlier ones narrower.
const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.drawn) Plotly.Plots.resize(target);
});

function draw(place) {
  const figure = place.figure;
  if (!figure || place.drawn === figure) return;
  place.drawn = figure;
  Plotly.react(place, named(figure.data), aroundConstant(figure.data, laidOut(figure)), { displaylogo: false, showTips: false, displayModeBar: HOVERS ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
  document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // its scratch pad, outside the page's landmarks
  section.dispatchEvent(new CustomEvent("drawn", { detail: place }));
}

function leave(panel) {
  const chart = panel.lastElementChild;
  inView.unobserve(chart);
  sized.unobserve(chart);
  Plotly.purge(chart);
  panel.remove();
}

function place(name) {
  let panel = section.querySelector(`[data-name="${CSS.escape(name)}"]`);
  if (!panel) {
    panel = document.createElement("div");
    panel.className = "panel";
    panel.dataset.name = name;
    const chart = document.createElement("div");
    chart.className = "chart";
    chart.setAttribute("role", "img");
    const heading = document.createElement("h2");
    heading.textContent = name;
    panel.append(heading, chart);
    section.append(panel);
    inView.observe(chart);
    sized.observe(chart);
  }
  return panel.lastElementChild;
}

// `loss: training loss 0.12 at step 190, validation loss 0.15 at step 180`
function described(figure) {
  if (figure.described) return figure.described;
  const last = (y) => (Number.isFinite(y.at(-1)) ? y.at(-1).toPrecision(4) : "not a number");
  const ends = figure.data.map(({ name, x, y }) => `${name} ${last(y)} at step ${x.at(-1)}`);
  return `${figure.name}: ${ends.join(", ")}`;
}

function soon() { timer ??= setTimeout(load, 1000); }

// One request at a time: many that wait for a busy server would come in any order.
export async function load() {
  timer = null;
  if (isAsking) { soon(); return; }
  isAsking = true;
  const found = await asked().catch(() => null); // the server is away; the page is woken when it is back
  await plotly;
  isAsking = false;
  if (found) show(found.figures);
}

async function asked() {
  const answer = await fetch(section.dataset.figures, { headers: { Accept: "application/json" } });
  return answer.ok ? answer.json() : null;
}

function show(figures) {
  if (figures.length) section.querySelector(".empty")?.remove();
  const names = new Set(figures.map(({ name }) => name));
  for (const panel of section.querySelectorAll("[data-name]")) if (!names.has(panel.dataset.name)) leave(panel);
  for (const figure of figures) {
    const chart = place(figure.name);
    chart.figure = figure;
    chart.setAttribute("aria-label", described(figure));
    if (chart.inView) draw(chart);
  }
}

if (section) {
  section.addEventListener("wake", (event) => { event.stopPropagation(); soon(); }); // it may be within a part that is woken itself
  document.addEventListener("themechange", () => {
    for (const chart of section.querySelectorAll(".chart")) { chart.drawn = null; draw(chart); }
  });
  load();
}
