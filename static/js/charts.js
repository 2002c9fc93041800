// Draws the figures of a section with data-figures, keeps them fresh, and follows the theme. Only charts in view are mounted.

const section = document.querySelector("[data-figures]");
let timer = null;
const HOVERS = matchMedia("(hover: hover)").matches; // without a pointer the buttons would always cover the curves

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return { ink: get("--ink"), ink2: get("--ink-2"), line: get("--line"), panel: get("--panel") };
}

function themed(figure) {
  const { ink, ink2, line, panel } = colours();
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: ink2 } };
  return {
    ...figure.layout,
    title: undefined, // the panel's heading says it
    margin: { l: 52, r: 8, t: 8, b: 40 },
    height: undefined,
    autosize: true,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink2, activecolor: ink },
    hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: ink } },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: "system-ui, sans-serif" },
    xaxis: { ...axis, ...figure.layout.xaxis, title: { ...figure.layout.xaxis?.title, font: { size: 12, color: ink2 } } },
    yaxis: { ...axis, ...figure.layout.yaxis },
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
  Plotly.react(place, figure.data, themed(figure), { displaylogo: false, displayModeBar: HOVERS ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d"] });
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
  const ends = figure.data.map(({ name, x, y }) => `${name} ${Number(y.at(-1)).toPrecision(4)} at step ${x.at(-1)}`);
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
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
  load();
}
