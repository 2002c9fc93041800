// The Media page: a slider over the steps that exist. The step is in the address; without one the page follows the latest.

import { stateOf } from "./page_state.js";

const { state, change, address, onChange } = stateOf({ step: null, kind: "", trials: "", page: 1 }, ["step"]);
const [part, bar, slider, output, latest] = ["media", "media-steps", "media-step", "media-at", "media-latest"].map((id) => document.getElementById(id));
const STILL_MS = 60;

let steps = [];
let timer = null;

function load() {
  timer = null;
  htmx.ajax("GET", `${address("items")}&known=${steps.length}-${steps.at(-1)}`, { source: part, target: part, swap: "innerHTML" });
}

// Where the slider stands: at the step of the address, or at the nearest one before it.
function show() {
  const last = Math.max(0, steps.length - 1);
  const at = state.step === null ? last : Math.max(0, steps.findLastIndex((step) => step <= state.step));
  bar.hidden = !steps.length;
  [slider.max, slider.value] = [last, at];
  slider.disabled = latest.disabled = steps.length < 2;
  latest.setAttribute("aria-pressed", state.step === null);
  output.textContent = state.step ?? steps.at(-1) ?? "";
  slider.setAttribute("aria-valuetext", `step ${output.textContent}${state.step === null ? ", the latest" : ""}`);
}

// A trial may have very many steps, so they come only when they are others than before.
function read() {
  const known = part.querySelector("[data-steps]");
  if (known) steps = known.dataset.steps.split(",").filter(Boolean).map(Number);
  show();
}

slider.addEventListener("input", () => {
  const at = Number(slider.value);
  change({ step: at === steps.length - 1 ? null : steps[at] });
});
latest.addEventListener("click", () => change({ step: null }));
part.addEventListener("wake", load);
part.addEventListener("htmx:afterSwap", read);
onChange(() => { show(); timer ??= setTimeout(load, STILL_MS); });
read();
