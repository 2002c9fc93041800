// The lines and bands that charts are drawn with. Lines differ by color and dash; all read on light and dark paper.

// Those of metrics/traces.py, so that a GPU has the same color everywhere.
const COLORS = ["#2f6fd0", "#c98a06", "#0f8f6b", "#b5467b", "#8a5fb8", "#3f93a8", "#b4552d", "#6b8e23", "#7d858c", "#d0553f"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

/** The dash of the nth line of one color. */
export const dashOf = (nth) => DASHES[nth % DASHES.length];

/** How a line at this place looks: the eleventh has the first color and a dash. */
export const lookOf = (place) => ({ color: COLORS[place % COLORS.length], dash: dashOf(Math.floor(place / COLORS.length)) });

/** A line through these points, with a gap where y is null; one point alone is a mark. */
export const line = (name, x, y, look, more) => ({ type: "scatter", name, mode: x.length > 1 ? "lines" : "markers", x, y, connectgaps: false, line: look, ...more });

/** The band between two lines, one closed shape for each stretch in which `known` is not null. */
export function band(x, low, high, color, alpha, known = low) {
  const [xs, ys] = [[], []];
  for (let first = 0; first < x.length; first += 1) {
    if (known[first] === null) continue;
    let end = first;
    while (end < x.length && known[end] !== null) end += 1;
    xs.push(...x.slice(first, end), ...x.slice(first, end).toReversed(), null);
    ys.push(...low.slice(first, end), ...high.slice(first, end).toReversed(), null);
    first = end;
  }
  const fillcolor = `${color}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;
  return { type: "scatter", mode: "lines", line: { width: 0 }, fill: "toself", fillcolor, x: xs, y: ys, showlegend: false, hoverinfo: "skip" };
}
