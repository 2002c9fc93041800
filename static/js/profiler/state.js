// What the Profiler page of a trial shows, kept in its address, so that every view is a link.

import { stateOf } from "../page_state.js";

/**
 * host: names of hosts that have charts, gpu: UUIDs; none means the usual ones. x: "time" (of day) or "relative" (since the
 * start). from, to: ends of the window of time in epoch seconds, or null. rank: whose timings, or "". first, last: ends of
 * the window of steps. system: "open" or "closed", or "" for the usual (profiler/fold.js).
 */
export const { state, change, address, onChange } = stateOf(
  { host: [], gpu: [], x: "time", from: null, to: null, rank: "", first: null, last: null, system: "" },
);

export const section = document.getElementById("charts");
const begin = Number(section.dataset.begin);
const unit = Number(section.dataset.unit);
const round = (value, digits) => (value === null ? null : Number(value.toFixed(digits)));

/** A time (epoch seconds) as Plotly has it: dates in milliseconds, or time since the start in the page's unit. */
export const toPlot = (at) => (state.x === "time" ? at * 1000 : (at - begin) / unit);

function fromPlot(value) {
  if (state.x !== "time") return begin + Number(value) * unit;
  return (typeof value === "number" ? value : Date.parse(`${String(value).replace(" ", "T")}Z`)) / 1000;
}

/** What the axis of time measures, with its unit. */
export const timeTitle = () => document.querySelector(`#profiler-x option[value="${state.x}"]`).dataset.title;

/** A time as people read it on that axis. */
export const spelledTime = (at) => (state.x === "time" ? new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) : Number(toPlot(at).toPrecision(6)).toString());

/** The axes that charts share (charts/window.js): time, and steps. */
export const timeAxis = { fromPlot, choose: (from, to) => change({ from: round(from, 3), to: round(to, 3) }) };
export const stepAxis = { fromPlot: Number, choose: (first, last) => change({ first: first && Math.max(0, Math.floor(first)), last: last && Math.ceil(last) }) };
