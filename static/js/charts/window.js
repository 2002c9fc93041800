// Windows of charts that share an axis, by dragging and by keys, and the hover that they share.
//
// An axis is {fromPlot, choose}: the first makes the state's number of Plotly's place, the second takes both ends of a new
// window as such numbers, or null twice for all.

import { plotly } from "./plot.js";

const KEYS = { "+": zoomed(0.5), "=": zoomed(0.5), "-": zoomed(2), ArrowLeft: moved(-0.25), ArrowRight: moved(0.25) };

function zoomed(factor) {
  return ([first, last]) => {
    const [middle, half] = [(first + last) / 2, ((last - first) * factor) / 2];
    return [middle - half, middle + half];
  };
}

function moved(share) { return ([first, last]) => [first + (last - first) * share, last + (last - first) * share]; }

/** Follow what somebody does to a chart that has just been mounted. `others()`: the places of all that share the axis. */
export function follow(place, others, { fromPlot, choose }) {
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

// Plotly says a date as text in UTC, and wants it as milliseconds.
const asNumber = (xval) => (typeof xval === "string" ? Date.parse(`${xval.replace(" ", "T")}Z`) : xval);

let frame = 0;

function hoverOthers(place, others, event) {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(async () => {
    const { Fx } = await plotly;
    for (const other of others()) {
      if (other === place) continue;
      if (event?.xvals) Fx.hover(other, { xval: asNumber(event.xvals[0]) }, "xy", true);
      else Fx.unhover(other, undefined, "xy", true);
    }
  });
}

/** Zoom and move by the keys of a chart that has the focus. */
export function onKey(event, { fromPlot, choose }) {
  const place = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || !place.layout?.xaxis?.range) return;
  if (event.key === "0") choose(null, null);
  else if (KEYS[event.key]) choose(...KEYS[event.key](place.layout.xaxis.range.map(fromPlot)));
  else return;
  event.preventDefault();
}
