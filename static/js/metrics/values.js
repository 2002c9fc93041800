// What a chart shows, in words and as a table, for those who do not see it.

import { tableOf as table } from "../charts/panel.js";
import { inWindow } from "./curves.js";
import { axisTitle, isAcrossGaps } from "./plot.js";
import { state } from "./state.js";

const ROWS = 50;
const short = (value) => (value === null || value === undefined ? "not a number" : Number(value.toPrecision(6)).toString());

/** A place on the axis as people read it. */
function spelled(x) {
  if (state.x === "wall") return new Date(x * 1000).toISOString().replace("T", " ").slice(0, 19);
  if (state.x !== "relative") return short(x);
  const unit = Number(document.getElementById("charts").dataset.unit);
  return short(x / unit);
}

/** `loss over steps completed: training loss 0.12 at 190, validation loss 0.15 at 180` */
export function sentence(name, curves, best) {
  const ends = curves.filter(({ x }) => x.length).map(({ group, name: metric, x, y }) => `${group} ${metric} ${short(y.at(-1))} at ${spelled(x.at(-1))}`);
  const mark = best ? `; best checkpoint at step ${best.step}` : "";
  const across = curves.some(isAcrossGaps) ? "; smoothed across gaps" : "";
  return `${name} over ${axisTitle()}: ${ends.join(", ")}${across}${mark}`;
}

/** `1,000 of 100,000 points` of all curves in the window; empty where all points are drawn. */
export function reduction(curves) {
  if (curves.some(({ total }) => total === null)) return "";
  const sum = (of) => curves.reduce((all, curve) => all + curve[of], 0);
  const [shown, total] = [sum("shown"), sum("total")];
  return shown < total ? `${shown.toLocaleString("en")} of ${total.toLocaleString("en")} points` : "";
}

/** The table of values of what stands in the window: evenly chosen places, the last one among them. */
export function tableOf(curves) {
  const columns = curves.map(({ x, y }) => new Map(x.map((place, index) => [place, y[index]]).filter(([place]) => inWindow(place))));
  const places = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((one, other) => one - other);
  const stride = Math.ceil(places.length / ROWS) || 1;
  const rows = places.filter((_, index) => (places.length - 1 - index) % stride === 0);
  const caption = `${rows.length} of ${places.length.toLocaleString("en")} rows shown; all points are in the CSV`;
  const heads = [axisTitle(), ...curves.map(({ group, name }) => `${group} ${name}`)];
  return table(caption, heads, rows.map((place) => [
    spelled(place), ...columns.map((column) => (column.has(place) ? short(column.get(place)) : "")),
  ]));
}
