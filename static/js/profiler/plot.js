// One chart of samples as Plotly draws it: a line per host, GPU or rank, and behind it the band from its lowest to its highest.

import { dragmode, put } from "../charts/plot.js";
import { legendHeight, themed } from "../charts/theme.js";
import { state, timeTitle, toPlot } from "./state.js";

/** Of lines, in their order; both read on light and dark paper. The ninth line has the first colour and a dash. */
const COLOURS = ["#2f6fd0", "#c98a06", "#1f9e78", "#b5467b", "#8a5fb8", "#3f93a8", "#b4552d", "#7d858c"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const NAMED_UP_TO = 16; // lines that a legend has room for
const TICK_WIDTH = 56; // pixels, of a time of day
const UNITS = { bytes: [1024, ["bytes", "KiB", "MiB", "GiB", "TiB"]], "bytes/s": [1000, ["bytes/s", "kB/s", "MB/s", "GB/s"]] };
const WORDS = { "1/s": "operations/s" };

/** How a line at this place looks. */
export const lookOf = (place) => ({ color: COLOURS[place % COLOURS.length], dash: DASHES[Math.floor(place / COLOURS.length) % DASHES.length] });

const pale = (colour, alpha) => `${colour}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;

/** {factor, unit}: how many of `unit` make one of the unit that suits values up to `most`. */
function scaleOf(unit, most) {
  if (!UNITS[unit]) return { factor: 1, unit: WORDS[unit] ?? unit };
  const [base, names] = UNITS[unit];
  const power = Math.min(names.length - 1, Math.max(0, Math.floor(Math.log(Math.max(most, 1)) / Math.log(base) + 1e-9)));
  return { factor: base ** power, unit: names[power] };
}

/** The scale of a chart of these lines. */
export function scaleFor(unit, lines) {
  let most = 0;
  for (const { mean, high } of lines) for (const value of high ?? mean) if (value > most) most = value;
  return scaleOf(unit, most);
}

// One closed shape for each stretch without a gap.
function band({ x, mean, low, high }, factor) {
  const [xs, ys] = [[], []];
  for (let first = 0; first < x.length; first += 1) {
    if (mean[first] === null) continue;
    let end = first;
    while (end < x.length && mean[end] !== null) end += 1;
    const [at, least, most] = [x.slice(first, end).map(toPlot), low.slice(first, end), high.slice(first, end)];
    xs.push(...at, ...at.toReversed(), null);
    ys.push(...least.map((value) => value / factor), ...most.map((value) => value / factor).toReversed(), null);
    first = end;
  }
  return { x: xs, y: ys };
}

function traces(lines, { factor, unit }) {
  return lines.flatMap((line) => {
    const look = lookOf(line.place);
    const common = { type: "scatter", name: line.label, legendgroup: line.key };
    const curve = {
      ...common, mode: line.x.length > 1 ? "lines" : "markers", x: line.x.map(toPlot), y: line.mean.map((value) => (value === null ? null : value / factor)),
      connectgaps: false, line: { ...look, width: 1.5 }, hovertemplate: `%{y:.4~g} ${unit}`,
    };
    if (!line.low) return [curve];
    const behind = { ...common, mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: pale(look.color, lines.length > 4 ? 0.1 : 0.18), showlegend: false, hoverinfo: "skip", ...band(line, factor) };
    return [behind, curve];
  });
}

export { legendHeight };

/** `span`: [first, last] of all charts of time, in epoch seconds. */
function layout(place, { title, unit }, lines, scale, span) {
  const range = [state.from ?? span[0], state.to ?? span[1]].map(toPlot);
  const isNamed = lines.length <= NAMED_UP_TO;
  return themed({
    margin: { l: 56, r: 10, t: 8, b: (state.x === "time" ? 64 : 48) + (isNamed ? legendHeight(lines.map(({ label }) => label), place) : 0) },
    showlegend: isNamed,
    legend: { orientation: "h", xref: "container", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { size: 11 }, tracegroupgap: 0 },
    hovermode: isNamed ? "x unified" : "closest",
    dragmode: dragmode(),
    uirevision: "lines", // what was hidden by the legend stays hidden
    xaxis: { title: { text: timeTitle(), standoff: 6 }, type: state.x === "time" ? "date" : "linear", range, nticks: Math.max(2, Math.min(6, Math.floor((place.clientWidth - 66) / TICK_WIDTH))), tickangle: 0, uirevision: `${state.x} ${state.from} ${state.to}` },
    yaxis: {
      title: { text: scale.unit, standoff: 4 }, automargin: true, fixedrange: true,
      ...(unit === "%" ? { range: [0, 102] } : { rangemode: "tozero" }),
      uirevision: title,
    },
  });
}

export async function draw(place, chart, lines, span) {
  const scale = scaleFor(chart.unit, lines);
  await put(place, traces(lines, scale), layout(place, chart, lines, scale, span));
}
