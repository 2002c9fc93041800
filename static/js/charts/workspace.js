// Charts over many runs: what is chosen above them is in the address, and a line and its row in the table light up together.

import { stateOf } from "../page_state.js";
import { load } from "./figures.js";

const form = document.getElementById("view");
const table = document.getElementById("runs");
const section = document.getElementById("charts");
const { state, change, address, onChange } = stateOf({
  trials: "", experiments: "", q: "", workspace: "", project: "", user: "", pool: "", label: "", state: "", archived: false,
  metric: [], group: [], band: "range", x: "step", log: false, smooth: 0, baseline: "",
}, ["smooth"]);
const TYPING_MS = 150;

// --- what is chosen ---

const [first, second] = form?.elements.group ?? [];

function showControls() {
  [first.value, second.value] = [state.group[0] ?? "", state.group[1] ?? ""];
  second.closest("label").hidden = !state.group.length;
  form.elements.band.closest("label").hidden = !state.group.length;
  for (const name of ["band", "x", "smooth"]) form.elements[name].value = state[name];
  form.elements.log.checked = state.log;
  form.querySelector("output").textContent = state.smooth ? state.smooth.toFixed(2) : "off";
}

function chosen() {
  const { band, x, log, smooth } = form.elements;
  const group = [...new Set([first.value, second.value])].filter(Boolean);
  change({ group, band: band.value, x: x.value, log: log.checked, smooth: Number(smooth.value) });
}

function refresh() {
  const here = address("1");
  table.setAttribute("hx-get", here);
  htmx.process(table); // it reads the address once
  htmx.trigger(table, "wake");
  section.dataset.figures = here.replace(/^[^?]*/, "/compare/chart");
  load();
}

let typing = null;
form?.addEventListener("change", chosen);
form?.addEventListener("input", ({ target }) => {
  if (target.name !== "smooth") return;
  clearTimeout(typing);
  typing = setTimeout(chosen, TYPING_MS);
});
form?.addEventListener("submit", (event) => { event.preventDefault(); chosen(); });
onChange(() => { if (form) { showControls(); refresh(); } });
if (form) showControls();

// A form that asks for other runs or metrics takes along what has been chosen since the page came.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-carries]")) return;
  event.preventDefault();
  const given = new FormData(event.target);
  change({ q: given.get("q") ?? "", metric: given.getAll("metric") });
  location.reload();
});

table?.addEventListener("click", (event) => {
  const pin = event.target.closest("a[data-baseline]");
  if (!pin || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  change({ baseline: pin.dataset.baseline });
});

// --- a line and its row ---

let lit = null; // the key of a line

function light(key) {
  if (key === lit) return;
  lit = key;
  showLit();
}

function showLit() {
  for (const row of table.querySelectorAll("tr[data-line]")) row.classList.toggle("lit", row.dataset.line === lit);
  for (const mark of section.querySelectorAll(".scatterlayer > .trace")) {
    const { meta, opacity } = mark.__data__[0].trace;
    mark.style.opacity = lit === null || meta === lit ? opacity : 0.12;
  }
}

const rowOf = ({ target }) => target.closest("tr[data-line]")?.dataset.line ?? null;
for (const name of ["pointerover", "focusin"]) table?.addEventListener(name, (event) => light(rowOf(event)));
for (const name of ["pointerleave", "focusout"]) table?.addEventListener(name, () => light(null));
table?.addEventListener("htmx:afterSwap", showLit);

section?.addEventListener("drawn", ({ detail: place }) => {
  if (lit !== null) showLit();
  if (place.isHeard) return;
  place.isHeard = true;
  place.on("plotly_hover", ({ points }) => {
    light(points[0].data.meta);
    table.querySelector("tr.lit")?.scrollIntoView({ block: "nearest" });
  });
  place.on("plotly_unhover", () => light(null));
});
