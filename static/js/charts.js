// Draws the figures of a section with data-figures, keeps them fresh, and follows the theme. Only charts in view are mounted.

const section = document.querySelector("[data-figures]");
let timer = null;

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return { ink: get("--ink"), ink2: get("--ink-2"), line: get("--line"), panel: get("--panel") };
}

function themed(figure) {
  const { ink, ink2, line } = colours();
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: ink2 } };
  return {
    ...figure.layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: "system-ui, sans-serif" },
    xaxis: { ...axis, ...figure.layout.xaxis },
    yaxis: { ...axis, ...figure.layout.yaxis },
  };
}

const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
});

function draw(place) {
  const figure = place.figure;
  if (!figure || place.drawn === figure) return;
  place.drawn = figure;
  Plotly.react(place, figure.data, themed(figure), { responsive: true, displaylogo: false });
}

function place(name) {
  let panel = section.querySelector(`[data-name="${CSS.escape(name)}"]`);
  if (!panel) {
    panel = document.createElement("div");
    panel.className = "panel";
    panel.dataset.name = name;
    const chart = document.createElement("div");
    chart.className = "chart";
    panel.append(chart);
    section.append(panel);
    inView.observe(chart);
  }
  return panel.firstElementChild;
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
    const box = chart.getBoundingClientRect();
    if (box.top < innerHeight && box.bottom > 0) draw(chart);
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
