// Plotly as the pages of charts use it: loaded behind the page, drawing into places, and giving them back.

import { aroundConstant, colors, named } from "./theme.js";

const OF_TOUCH = matchMedia("(pointer: coarse)");

/** Plotly, once it has come. */
export const plotly = new Promise((resolve) => {
  if (window.Plotly) { resolve(window.Plotly); return; }
  const script = document.getElementById("plotly");
  script.addEventListener("load", () => resolve(window.Plotly));
  script.addEventListener("error", () => {
    const said = Object.assign(document.createElement("p"), { className: "banner failed" });
    said.setAttribute("role", "alert");
    said.textContent = "Charts cannot be drawn: plotly.js could not be loaded. Reload the page. If that does not help, run make setup on the server and restart it.";
    document.querySelector("#charts, [data-figures]").before(said);
  });
});

/** What a pointer that drags does: a finger scrolls the page. */
export const dragmode = () => (OF_TOUCH.matches ? false : "zoom");

/** Draw these traces in this place, or anew what has changed of them. */
export async function put(place, traces, layout) {
  const Plotly = await plotly;
  await Plotly.react(place, named(traces), aroundConstant(traces, layout), { displayModeBar: false, showTips: false, doubleClick: "autosize", responsive: false });
  document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // its scratch pad, outside the page's landmarks
}

/** Give the place back to the page; what was drawn is gone. */
export async function erase(place) { (await plotly).purge(place); }

/** Save the chart as it stands, on the page's paper, as a file of this name: `trial-7-loss`. */
export async function savePicture(place, file) {
  const { panel } = colors();
  const figure = { data: place.data, layout: { ...place.layout, paper_bgcolor: panel, plot_bgcolor: panel, autosize: false } };
  const size = { width: place.clientWidth, height: place.clientHeight, scale: 2 };
  return (await plotly).downloadImage(figure, { format: "png", filename: file.replace(/[^\w.-]+/g, "_"), ...size });
}
