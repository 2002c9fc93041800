// The charts over steps as Plotly figures with their words: where a step goes, the slow rank, rates, and each timing.
//
// A figure is {id, name, section, traces(place), layout(place), sentence, caption, heads, rows, note, height, isWide}; `rows` are the same in words.

import { dragmode } from "../charts/plot.js";
import { colors, legendHeight, literal, themed } from "../charts/theme.js";
import { band, line, lookOf } from "../charts/traces.js";
import { state } from "./state.js";

const REST = "not timed"; // metrics.step_figures.REST
const ROW_PX = [13, 30]; // of a rank in the heat map, least and most
const MAP_PX = [150, 700];
const NARROW_PX = 560; // a heat map so wide has no room for the names of hosts
const STRONG_LEAST = 10; // per cent at which the heat map's colors are full, at least and at most
const STRONG_MOST = 100;
const TABLE_ROWS = 40;
const short = (value) => (value === null || value === undefined ? "" : Number(value.toPrecision(3)).toString());
const mostOf = (...lists) => lists.flat().reduce((most, value) => (value !== null && value > most ? value : most), 0);

/** {factor, unit} for seconds up to `most`. */
const timeScale = (most) => (most >= 1 || most === 0 ? { factor: 1, unit: "s" } : most >= 1e-3 ? { factor: 1e-3, unit: "ms" } : { factor: 1e-6, unit: "µs" });

/** What all charts over steps share; `edges` as the server says them. */
function columnsOf(edges) {
  const firsts = edges.slice(0, -1);
  const lasts = edges.slice(1).map((edge) => edge - 1);
  return {
    firsts, lasts, middles: firsts.map((first, index) => (first + lasts[index]) / 2), widths: edges.slice(1).map((edge, index) => edge - edges[index]),
    words: firsts.map((first, index) => (first === lasts[index] ? `${first}` : `${first} to ${lasts[index]}`)),
  };
}

/** Round steps from tick to tick, at least so many. Plotly itself would put them at the middles of a few bars: 178, 396, 613. */
function apart(least) {
  const size = 10 ** Math.max(0, Math.floor(Math.log10(least)));
  return Math.max(1, [1, 2, 5, 10].find((each) => each * size >= least) * size);
}

function layout(place, span, yTitle, names, more = {}) {
  const range = [state.first ?? span[0] - 0.5, state.last ?? span[1] + 0.5];
  return themed({
    margin: { l: 56, r: 10, t: 8, b: 48 + legendHeight(names, place) },
    showlegend: names.length > 0,
    legend: { orientation: "h", xref: "container", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { size: 11 }, tracegroupgap: 0, traceorder: "normal" },
    hovermode: "x unified", dragmode: dragmode(), uirevision: "steps", bargap: 0, barmode: "stack",
    ...more.layout,
    xaxis: { title: { text: "steps completed", standoff: 6 }, range, tick0: 0, dtick: apart((range[1] - range[0]) / Math.max(2, Math.min(8, Math.floor(place.clientWidth / 80)))), tickangle: 0, hoverformat: ",.0f", uirevision: `${state.first} ${state.last}` },
    yaxis: { title: { text: yTitle, standoff: 4 }, automargin: true, fixedrange: true, rangemode: "tozero", ...more.yaxis },
  });
}

const scaled = (values, factor) => values.map((value) => (value === null ? null : value / factor));

function table(columns, heads, series) {
  const stride = Math.ceil(columns.words.length / TABLE_ROWS) || 1;
  const kept = columns.words.map((_, index) => index).filter((index) => (columns.words.length - 1 - index) % stride === 0);
  return { caption: `${kept.length} of ${columns.words.length} intervals of steps`, heads: ["steps", ...heads], rows: kept.map((index) => [columns.words[index], ...series.map((values) => short(values[index]))]) };
}

function mean(values, widths) {
  let [sum, steps] = [0, 0];
  values.forEach((value, index) => { if (value !== null) { sum += value * widths[index]; steps += widths[index]; } });
  return steps ? sum / steps : null;
}

/** The figures of an answer of the server, in their order; `whose`: "mean of all ranks" or a rank. */
export function figures(answer, whose) {
  if (!answer.edges.length) return [];
  const columns = columnsOf(answer.edges);
  const span = [columns.firsts[0], columns.lasts.at(-1)];
  return [
    ...(answer.stack ? [stackOf(answer.stack, columns, span, whose)] : []),
    ...(answer.slow ? [mapOf(answer.slow, span), lostOf(answer.slow, span)] : []),
    ...answer.rates.map((rate) => rateOf(rate, columns, span, whose)),
    ...answer.timings.map((timing) => timingOf(timing, columns, span, whose)),
  ];
}

function stackOf({ parts, overlaps }, columns, span, whose) {
  const sums = columns.words.map((_, index) => parts.reduce((sum, { seconds }) => sum + (seconds[index] ?? 0), 0));
  const { factor, unit } = timeScale(mostOf(sums));
  const values = parts.map(({ seconds }) => scaled(seconds, factor));
  const means = values.map((all) => mean(all, columns.widths) ?? 0);
  const whole = means.reduce((sum, value) => sum + value, 0);
  const shares = parts.map(({ name }, index) => `${name} ${short(means[index])} ${unit} (${Math.round((100 * means[index]) / (whole || 1))} %)`);
  return {
    id: "steps", name: "Step breakdown", isWide: true, section: "step", ...table(columns, parts.map(({ name }) => `${name} (${unit})`), values),
    note: overlaps ? "The timings add up to more than the steps: some ran outside of them, or at the same time." : "",
    sentence: `Step breakdown, ${whose}: ${shares.join(", ")}; ${short(whole)} ${unit} in total`,
    traces: () => parts.map(({ name }, place) => {
      const rest = name === REST;
      const pattern = rest ? { shape: ".", size: 4, solidity: 0.15 } : { shape: ["", "/", "x"][Math.floor(place / 8) % 3], solidity: 0.3 };
      return { type: "bar", name, x: columns.middles, width: columns.widths, y: values[place], marker: { color: rest ? colors().line : lookOf(place).color, line: { width: 0 }, pattern }, hovertemplate: `%{y:.3~g} ${unit}` };
    }),
    layout: (place) => layout(place, span, `${unit} per step`, parts.map(({ name }) => name)),
  };
}

function mapOf(slow, span) {
  const columns = columnsOf(slow.edges);
  const { factor, unit } = timeScale(mostOf(...slow.seconds));
  const percent = slow.over.map((row) => row.map((value) => (value === null ? null : value * 100)));
  const strong = Math.min(STRONG_MOST, Math.max(STRONG_LEAST, mostOf(...percent.map((row) => row.map((value) => value && Math.abs(value))))));
  const names = slow.rows.map(({ rank, host }) => literal(`rank ${rank}, ${host}`));
  const narrow = (place) => place.clientWidth < NARROW_PX;
  const namesFor = (place) => (narrow(place) ? slow.rows.map(({ rank }) => `rank ${rank}`) : names);
  const told = percent.map((row, place) => row.map((value, index) => (value === null ? "" : `<b>${names[place]}</b><br>steps ${columns.words[index]}<br>${short(slow.seconds[place][index] / factor)} ${unit} of work per step<br>${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(0)} % against the median rank`)));
  const height = Math.min(MAP_PX[1], Math.max(MAP_PX[0], names.length * Math.min(ROW_PX[1], Math.max(ROW_PX[0], 360 / names.length))));
  return {
    id: "ranks", name: "Work of each rank", isWide: true, section: "slow", height: height + 62,
    caption: "The slowest ranks", heads: ["rank", "host", "work per step", "against the median"],
    rows: slow.worst.map(({ rank, host, work, over }) => [`${rank}`, host, `${short(work / factor)} ${unit}`, over === null ? "" : `${over >= 0 ? "+" : "−"}${Math.abs(over * 100).toFixed(0)} %`]),
    sentence: slow.sentences.join(" "), note: names.length > 32 ? "The slowest rank is first." : "",
    traces: (place) => {
      const { line } = colors();
      return [{
        type: "heatmap", x: slow.edges.map((edge) => edge - 0.5), y: namesFor(place), z: percent, text: told, hovertemplate: "%{text}<extra></extra>", hoverongaps: false,
        zmin: -strong, zmax: strong, xgap: 0, ygap: names.length > 100 ? 0 : 1,
        colorscale: [[0, "#2f6fd0"], [0.5, line], [0.75, "#d99a1c"], [1, "#b8402a"]],
        colorbar: { title: { text: narrow(place) ? "" : "against the median", side: "right", font: { size: 11 } }, thickness: narrow(place) ? 6 : 10, len: 1, outlinewidth: 0, tickfont: { size: 11 }, ticksuffix: " %" },
      }];
    },
    layout: (place) => layout(place, span, "", [], { layout: { hovermode: "closest" }, yaxis: { autorange: "reversed", type: "category", tickfont: { size: 11, color: colors().ink2 }, tickmode: names.length > 40 ? "auto" : "linear", nticks: 36 } }),
  };
}

function lostOf(slow, span) {
  const columns = columnsOf(slow.edges);
  const { factor, unit } = timeScale(mostOf(slow.lost));
  const values = scaled(slow.lost, factor);
  return {
    id: "lost", name: "Lost to the slowest rank", section: "slow", isWide: true, height: 170, ...table(columns, [`lost (${unit})`], [values]), sentence: `Lost to the slowest rank over steps: ${slow.sentences[1]}`,
    traces: () => [{ type: "bar", name: "lost", x: columns.middles, width: columns.widths, y: values, marker: { color: "#b4552d", line: { width: 0 } }, hovertemplate: `%{y:.3~g} ${unit}` }],
    layout: (place) => layout(place, span, `${unit} per interval`, []),
  };
}

function rateOf({ name, values }, columns, span, whose) {
  return {
    id: `rate-${name}`, name: `${name} per second`, section: "rates", isWide: true, height: 190, ...table(columns, [`${name}/s`], [values]),
    sentence: `${name} per second over steps, ${whose === "mean of all ranks" ? "all ranks together" : whose}: mean ${short(mean(values, columns.widths))}, min ${short(Math.min(...values.filter((value) => value !== null)))}, max ${short(mostOf(values))}`,
    traces: () => [line(name, columns.middles, values, { ...lookOf(2), width: 2 }, { hovertemplate: `%{y:.4~g} ${literal(name)}/s` })],
    layout: (place) => layout(place, span, `${name}/s`, []),
  };
}

function timingOf({ name, p50, p95, low, high }, columns, span, whose) {
  const { factor, unit } = timeScale(mostOf(high));
  const [half, most, least, longest] = [p50, p95, low, high].map((values) => scaled(values, factor));
  const { color } = lookOf(0);
  const timing = (label, y, look, more) => line(label, columns.middles, y, look, { hovertemplate: `%{y:.3~g} ${unit}`, ...more });
  return {
    id: `timing-${name}`, name, section: "timings", ...table(columns, ["p50", "p95", "shortest", "longest"].map((word) => `${word} (${unit})`), [half, most, least, longest]),
    sentence: `${name} over steps, ${whose}: median ${short(mean(half, columns.widths))} ${unit}, 95th percentile ${short(mean(most, columns.widths))} ${unit}, ${short(Math.min(...least.filter((value) => value !== null)))} to ${short(mostOf(longest))} ${unit}`,
    traces: () => [
      { ...band(columns.middles, half, most, color, 0.18), legendgroup: "p95" },
      timing("longest", longest, { color: colors().ink2, width: 1, dash: "dot" }),
      timing("p95", most, { color, width: 1, dash: "dash" }, { legendgroup: "p95" }),
      timing("p50", half, { color, width: 2 }),
    ],
    layout: (place) => layout(place, span, unit, ["longest", "p95", "p50"]),
  };
}
