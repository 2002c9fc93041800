// One chart of samples as Plotly draws it: a line per host, GPU or rank, and behind it the band from its lowest to its highest.

import { dragmode, put } from "../charts/plot.js";
import { legendHeight, themed } from "../charts/theme.js";
import { band, line, lookOf } from "../charts/traces.js";
import { state, timeTitle, toPlot } from "./state.js";

const NAMED_UP_TO = 16; // lines that a legend has room for
const TICK_WIDTH = 56; // pixels, of a time of day
const UNITS = { bytes: [1024, ["bytes", "KiB", "MiB", "GiB", "TiB"]], "bytes/s": [1000, ["bytes/s", "kB/s", "MB/s", "GB/s"]] };
const WORDS = { "1/s": "operations/s" };

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

function traces(lines, { factor, unit }) {
  const scaled = (values) => values.map((value) => (value === null ? null : value / factor));
  return lines.flatMap(({ place, key, label, x, mean, low, high }) => {
    const [look, at] = [lookOf(place), x.map(toPlot)];
    const curve = line(label, at, scaled(mean), { ...look, width: 1.5 }, { legendgroup: key, hovertemplate: `%{y:.4~g} ${unit}` });
    if (!low) return [curve];
    return [{ ...band(at, scaled(low), scaled(high), look.color, lines.length > 4 ? 0.1 : 0.18, mean), name: label, legendgroup: key }, curve];
  });
}

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
