// Windows of the charts: by dragging, by keys, by the fields; all charts share one. And the hover that they share.

import { fromPlot, plotly, toPlot } from "./metric_plot.js";
import { change, state } from "./metric_state.js";

const KEYS = { "+": zoomed(0.5), "=": zoomed(0.5), "-": zoomed(2), ArrowLeft: moved(-0.25), ArrowRight: moved(0.25) };
const [fromField, toField, reset] = ["metric-from", "metric-to", "metric-reset"].map((id) => document.getElementById(id));

/** The window of this chart as it stands, in the state's units. */
function windowOf(place) { return place.layout.xaxis.range.map(fromPlot); }

function zoomed(factor) {
  return ([first, last]) => {
    const [middle, half] = [(first + last) / 2, ((last - first) * factor) / 2];
    return [middle - half, middle + half];
  };
}

function moved(share) { return ([first, last]) => [first + (last - first) * share, last + (last - first) * share]; }

const DIGITS = { step: 0, relative: 2, wall: 3, epoch: 4 };
const round = (value) => Number(value.toFixed(DIGITS[state.x] ?? 4));

function choose(first, last) { change({ from: first === null ? null : round(first), to: last === null ? null : round(last) }); }

/** Follow what somebody does to a chart that has just been mounted. `others()`: the places of all that are. */
export function follow(place, others) {
  if (place.isFollowed) return;
  place.isFollowed = true;
  place.on("plotly_relayout", (event) => {
    const range = event["xaxis.range"] ?? (event["xaxis.range[0]"] === undefined ? null : [event["xaxis.range[0]"], event["xaxis.range[1]"]]);
    if (range) choose(...range.map(fromPlot));
    else if (event["xaxis.autorange"]) choose(null, null);
  });
  place.on("plotly_hover", (event) => hoverOthers(place, others, event));
  place.on("plotly_unhover", () => hoverOthers(place, others, null));
}

let frame = 0;

function hoverOthers(place, others, event) {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(async () => {
    const { Fx } = await plotly;
    for (const other of others()) {
      if (other === place) continue;
      if (event?.xvals) Fx.hover(other, { xval: event.xvals[0] }, "xy", true);
      else Fx.unhover(other, undefined, "xy", true);
    }
  });
}

export function onKey(event) {
  const place = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || !place.layout?.xaxis?.range) return;
  if (event.key === "0") choose(null, null);
  else if (KEYS[event.key]) choose(...KEYS[event.key](windowOf(place)));
  else return;
  event.preventDefault();
}

// --- the fields ---

const spell = (x) => (x === null ? "" : state.x === "wall" ? new Date(x * 1000).toISOString().slice(0, 19) : String(Number(toPlot(x).toPrecision(9))));

function typed(field) {
  const text = field.value.trim();
  if (!text) return null;
  const value = state.x === "wall" ? Date.parse(text.endsWith("Z") ? text : `${text}Z`) / 1000 : fromPlot(text.replaceAll(",", ""));
  return Number.isFinite(value) ? value : undefined;
}

/** Show the window in the fields; one that somebody types in is left alone. */
export function showWindow() {
  for (const [field, value] of [[fromField, state.from], [toField, state.to]]) {
    if (document.activeElement !== field) field.value = spell(value);
    field.setCustomValidity("");
  }
  reset.disabled = state.from === null && state.to === null;
}

function read() {
  const [first, last] = [typed(fromField), typed(toField)];
  fromField.setCustomValidity(first === undefined ? "This is no place on the axis." : "");
  toField.setCustomValidity(last === undefined || (first !== null && last !== null && last < first) ? "This must be a place on the axis, not before the first one." : "");
  if (fromField.reportValidity() && toField.reportValidity()) choose(first, last);
}

fromField.addEventListener("change", read);
toField.addEventListener("change", read);
reset.addEventListener("click", () => choose(null, null));
