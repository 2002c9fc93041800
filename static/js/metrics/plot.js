// One chart of curves as Plotly draws it: lines, axes with their names and units, window, mark of the best checkpoint.

import { dragmode, put } from "../charts/plot.js";
import { colors, legendHeight, themed } from "../charts/theme.js";
import { dashOf } from "../charts/traces.js";
import { inWindow } from "./curves.js";
import { state } from "./state.js";

const MARKED_UP_TO = 60; // points that have marks of their own; more of them would be a band
const FAINT = 0.28;
const TICK_WIDTH = 56; // pixels, of a time of day
// Beside their color, groups differ by their marks, and the lines of a group by their dash.
const STYLES = {
  training: { line: { color: "#7d858c", width: 1.5 } },
  validation: { line: { color: "#2f6fd0", width: 2 }, marker: { size: 6, symbol: "diamond" } },
};
const OTHERS = ["#c98a06", "#1f8a55", "#9a6bd0", "#b5607a"];

const unit = () => Number(document.getElementById("charts").dataset.unit);
/** A place on the axis as Plotly has it: dates in milliseconds, relative time in the page's unit. */
export const toPlot = (x) => (state.x === "wall" ? x * 1000 : state.x === "relative" ? x / unit() : x);
/** The same backwards, of a number or of Plotly's date in UTC. */
export function fromPlot(value) {
  if (state.x !== "wall") return state.x === "relative" ? Number(value) * unit() : Number(value);
  const time = typeof value === "number" ? value : Date.parse(`${String(value).replace(" ", "T")}Z`);
  return time / 1000;
}
/** What the axis x measures, with its unit. */
export const axisTitle = () => document.querySelector(`#metric-x option[value="${state.x}"]`)?.dataset.title ?? state.x;

/** Whether the curve's smoothed line goes on where values are no numbers. */
export const isAcrossGaps = ({ y, smooth }) => Boolean(smooth) && y.includes(null);
const labelOf = (curve) => `${curve.group} ${curve.name}${curve.smooth ? ", smoothed" : ""}${isAcrossGaps(curve) ? " across gaps" : ""}`;

function traces(curves) {
  const seen = {};
  const others = [...new Set(curves.map(({ group }) => group))].filter((group) => !STYLES[group]);
  return curves.flatMap((curve) => {
    const nth = seen[curve.group] = (seen[curve.group] ?? -1) + 1;
    const style = STYLES[curve.group] ?? { line: { color: OTHERS[others.indexOf(curve.group) % OTHERS.length], width: 1.5 } };
    const mode = curve.x.length <= MARKED_UP_TO ? "lines+markers" : "lines";
    const common = { type: "scatter", mode, connectgaps: false, hovertemplate: "%{y:.6~g}", marker: { size: 4 }, ...style, line: { ...style.line, dash: dashOf(nth) } };
    const raw = { ...common, name: `${curve.group} ${curve.name}`, x: curve.x.map(toPlot), y: curve.y };
    if (!curve.smooth) return [raw];
    const line = { ...common, mode: "lines", name: labelOf(curve), x: curve.smooth.x.map(toPlot), y: curve.smooth.y };
    return [{ ...raw, mode: "lines", opacity: FAINT, showlegend: false }, line];
  });
}

// The span of what stands in the window, with some room; null where nothing does. On a log scale in powers of ten.
function spanOf(curves) {
  let [least, most] = [Infinity, -Infinity];
  for (const { x, y } of curves) {
    for (let index = 0; index < x.length; index += 1) {
      const value = y[index];
      if (value === null || !inWindow(x[index]) || (state.log && value <= 0)) continue;
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  if (least > most) return null;
  if (state.log) [least, most] = [Math.log10(least), Math.log10(most)];
  const room = (most - least) * 0.06 || Math.abs(most) * 0.06 || 1;
  return [least - room, most + room];
}

function layout(place, name, curves, best) {
  const { ink2 } = colors();
  const hasWindow = state.from !== null || state.to !== null;
  const all = curves.filter(({ x }) => x.length);
  const ends = [Math.min(...all.map(({ x }) => x[0])), Math.max(...all.map(({ x }) => x.at(-1)))];
  const range = hasWindow ? [state.from ?? ends[0], state.to ?? ends[1]].map(toPlot) : undefined;
  const span = hasWindow ? spanOf(curves) : null;
  const right = best && best.x > (ends[0] + ends[1]) / 2;
  return themed({
    margin: { l: 60, r: 10, t: 10, b: (state.x === "wall" ? 64 : 50) + legendHeight(curves.map(labelOf), place) },
    showlegend: true,
    legend: { orientation: "h", xref: "container", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { size: 11 } },
    hovermode: "x unified",
    dragmode: dragmode(),
    uirevision: "curves", // what was hidden by the legend stays hidden
    xaxis: {
      title: { text: axisTitle(), standoff: 6 }, type: state.x === "wall" ? "date" : "linear", range,
      nticks: Math.max(2, Math.min(6, Math.floor((place.clientWidth - 70) / TICK_WIDTH))), tickangle: 0,
      autorange: !range, uirevision: `${state.x} ${state.from} ${state.to}`,
    },
    yaxis: {
      title: { text: name, standoff: 4 }, automargin: true, fixedrange: true, type: state.log ? "log" : "linear",
      ...(span ? { range: span, autorange: false } : { autorange: true }),
      uirevision: `${state.log} ${span}`,
    },
    shapes: best ? [{ type: "line", x0: toPlot(best.x), x1: toPlot(best.x), yref: "paper", y0: 0, y1: 1, line: { color: ink2, width: 1, dash: "dot" } }] : [],
    annotations: best && inWindow(best.x) ? [{ x: toPlot(best.x), y: 1, yref: "paper", yanchor: "top", xanchor: right ? "right" : "left", text: "best checkpoint", showarrow: false, font: { size: 11, color: ink2 } }] : [],
  });
}

/** Draw the curves in this place, or anew what has changed of them. */
export async function draw(place, name, curves, best) { await put(place, traces(curves), layout(place, name, curves, best)); }
