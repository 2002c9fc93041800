// Curves of charts as they come from the server: whole ones once, then what has come behind them, and details of a window.
//
// A chart's `base` has the whole range, reduced to the envelope of its extremes; `detail` the same for the window that is
// zoomed to. Together they are what is drawn, so that a curve goes on beyond the window's edges.

import { state } from "./state.js";

const POINTS = 1000; // metrics.series.DEFAULT_POINTS
const keyOf = ({ group, name }) => `${group}\n${name}`;

/** The server's address of these series in the view; `more` are parameters, `after` says the last step that is known. */
function addressOf(at, series, after, more) {
  const query = new URLSearchParams({ x: state.x, ...(state.smooth ? { smooth: state.smooth } : {}), ...more });
  series.forEach(([group, name], index) => {
    query.append("group", group);
    query.append("name", name);
    query.append("after", after[index] ?? "");
  });
  return `${at}/curves?${query}`;
}

/** Where all points of a chart are, as CSV. */
export function csvOf(at, series) {
  const query = new URLSearchParams();
  for (const [group, name] of series) { query.append("group", group); query.append("name", name); }
  return `${at}/points.csv?${query}`;
}

async function fetched(address, signal) {
  const answer = await fetch(address, { headers: { Accept: "application/json" }, signal });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.message ?? `The server answered ${answer.status}.`);
  return found;
}

/** Bring the bases of these charts up to date in one request: {name, series, base}. Raises what fetch does. */
export async function bring(at, charts, signal) {
  const wanted = charts.flatMap((chart) => chart.series.map((series) => [chart, series]));
  const known = ([chart, [group, name]]) => {
    const curve = chart.base?.curves.get(keyOf({ group, name }));
    return curve && !state.smooth && curve.x.length < 2 * POINTS ? curve.last : null;
  };
  const after = wanted.map(known);
  const run = charts.find((chart) => chart.base)?.base.run ?? "";
  const found = await fetched(addressOf(at, wanted.map(([, series]) => series), after, { run }), signal);
  const news = new Map(found.curves.map((curve) => [keyOf(curve), curve]));
  for (const chart of charts) {
    const curves = new Map();
    for (const [group, name] of chart.series) {
      const key = keyOf({ group, name });
      const index = wanted.findIndex(([owner, series]) => owner === chart && series[0] === group && series[1] === name);
      const isTail = !found.whole && after[index] !== null;
      const curve = isTail ? joined(chart.base.curves.get(key), news.get(key)) : news.get(key);
      if (curve) curves.set(key, curve);
    }
    chart.base = { curves, run: found.run, best: found.best };
  }
}

function joined(curve, tail) {
  if (!tail) return curve;
  return { ...curve, x: [...curve.x, ...tail.x], y: [...curve.y, ...tail.y], total: curve.total + tail.total, last: tail.last };
}

/** Whether the window holds more points of the chart than there are at hand. */
export const lacksDetail = (chart) => [...chart.base.curves.values()].some((curve) => curve.x.length < curve.total);

/** Bring the points inside the window from `from` to `to` (null: open) for these charts, in one request. */
export async function bringDetail(at, charts, { from, to }, signal) {
  const series = charts.flatMap((chart) => chart.series);
  const window = { ...(from === null ? {} : { from }), ...(to === null ? {} : { to }) };
  const found = await fetched(addressOf(at, series, [], window), signal);
  const news = new Map(found.curves.map((curve) => [keyOf(curve), curve]));
  for (const chart of charts) {
    const entries = chart.series.map(([group, name]) => keyOf({ group, name })).filter((key) => news.has(key)).map((key) => [key, news.get(key)]);
    chart.detail = { from, to, curves: new Map(entries) };
  }
}

/** What is drawn of a chart: [{group, name, x, y, smooth, shown, total}]; the last two count the points in the window. */
export function drawn(chart) {
  const { from, to } = state;
  const hasWindow = from !== null || to !== null;
  const detail = hasWindow && chart.detail?.from === from && chart.detail?.to === to ? chart.detail : null;
  return [...chart.base.curves].map(([key, base]) => {
    const part = detail?.curves.get(key);
    if (!part?.x.length) return { ...base, ...counted(base, hasWindow) };
    const smooth = base.smooth && part.smooth ? spliced(base.smooth, part.smooth) : base.smooth;
    const late = base.x.filter((x) => x > part.x.at(-1) && (to === null || x <= to)).length;
    return { ...base, ...spliced(base, part), smooth, shown: part.x.length + late, total: part.total + late };
  });
}

function counted(base, hasWindow) {
  if (!hasWindow) return { shown: base.x.length, total: base.total };
  const shown = base.x.filter(inWindow).length;
  return { shown, total: base.x.length < base.total ? null : shown }; // null: not known yet
}

/** Whether x lies in the window. */
export const inWindow = (x) => (state.from === null || x >= state.from) && (state.to === null || x <= state.to);

// The whole curve with the finer part in the place of what it covers.
function spliced(whole, part) {
  const [first, last] = [part.x[0], part.x.at(-1)];
  const before = whole.x.findIndex((x) => x >= first);
  const behind = whole.x.findIndex((x) => x > last);
  const put = (all, some) => [...all.slice(0, before < 0 ? all.length : before), ...some, ...(behind < 0 ? [] : all.slice(behind))];
  return { x: put(whole.x, part.x), y: put(whole.y, part.y) };
}
