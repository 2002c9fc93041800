// Draws the figures of a section with data-figures, keeps them fresh, and follows the theme. Only charts in view are mounted.

import { named, themed } from "./chart_theme.js";

const section = document.querySelector("[data-figures]");
let timer = null;
const HOVERS = matchMedia("(hover: hover)").matches; // without a pointer the buttons would always cover the curves

function laidOut(figure) {
  return {
    ...themed(figure.layout),
    title: undefined, // the panel's heading says it
    margin: { l: 52, r: 8, t: 8, b: 40 },
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
  Plotly.react(place, named(figure.data), laidOut(figure), { displaylogo: false, showTips: false, displayModeBar: HOVERS ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
  document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // its scratch pad, outside the page's landmarks
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
  const last = (y) => (y.at(-1) === null ? "no number" : y.at(-1).toPrecision(4));
  const ends = figure.data.map(({ name, x, y }) => `${name} ${last(y)} at step ${x.at(-1)}`);
  return `${figure.name}: ${ends.join(", ")}`;
}

async function load() {
  timer = null;
  const answer = await fetch(section.dataset.figures, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const { figures } = await answer.json();
  if (figures.length) section.querySelector(".empty")?.remove();
  for (const figure of figures) {
    const chart = place(figure.name);
    chart.figure = figure;
    chart.setAttribute("aria-label", described(figure));
    if (chart.inView) draw(chart);
  }
}

if (section) {
  section.addEventListener("wake", () => { timer ??= setTimeout(load, 1000); });
  document.addEventListener("themechange", () => {
    for (const chart of section.querySelectorAll(".chart")) { chart.drawn = null; draw(chart); }
  });
  load();
}
