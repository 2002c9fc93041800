// Points of the charts of samples as they come from the server: whole lines once, then what has come behind them, and details
// of a window. A line is {x: epoch seconds, mean, low, high, total, gap, last}; null in `mean` is a gap.

import { state } from "./state.js";

const FULL = 1200; // points of a line; more of them are asked for anew, reduced
const ANEW_MS = 120_000; // what a host that was cut off brings later lies before the others' last points
const SLACK_S = 900; // a line that ended so long before the others has ended

async function fetched(address, signal) {
  const answer = await fetch(address, { headers: { Accept: "application/json" }, signal });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.message ?? `The server answered ${answer.status}.`);
  return found;
}

function addressOf(at, charts, more) {
  const query = new URLSearchParams(more);
  for (const chart of charts) query.append("chart", chart.id);
  for (const host of new Set(charts.flatMap(({ hosts }) => hosts))) query.append("host", host);
  return `${at}/samples?${query}`;
}

/** Where all points of a chart are, as CSV. */
export const csvOf = (at, chart) => addressOf(at, [chart], {}).replace("/samples?", "/samples.csv?");

function linesOf(found, chart, times) {
  const known = new Set(chart.lines.map(({ key }) => key));
  const lines = (found.charts[chart.id] ?? []).filter(({ key }) => known.has(key));
  return new Map(lines.map(({ key, times: place, ...line }) => [key, { ...line, x: times[place] }]));
}

async function read(at, charts, more, signal) {
  const found = await fetched(addressOf(at, charts, more), signal);
  const times = found.times.map((all) => all.map((ms) => found.origin + ms / 1000));
  return charts.map((chart) => [chart, linesOf(found, chart, times)]);
}

const isWhole = ({ base, broughtAt }) => base && Date.now() - broughtAt < ANEW_MS && [...base.values()].every(({ x }) => x.length < FULL);

/** Bring these charts up to date in one request: all of those that need it, else what has come behind. Raises as fetch does. */
export async function bring(at, charts, signal) {
  const anew = charts.filter((chart) => !isWhole(chart) || !chart.base.size);
  if (anew.length) {
    for (const [chart, lines] of await read(at, anew, {}, signal)) Object.assign(chart, { base: lines, broughtAt: Date.now() });
    return anew;
  }
  const lasts = charts.flatMap(({ base }) => [...base.values()].map(({ last }) => last));
  const after = Math.min(...lasts.filter((last) => last > Math.max(...lasts) - SLACK_S));
  for (const [chart, tails] of await read(at, charts, { after }, signal)) {
    for (const [key, tail] of tails) chart.base.set(key, chart.base.has(key) ? joined(chart.base.get(key), tail) : tail);
  }
  return charts;
}

function joined(line, tail) {
  const start = tail.x.findIndex((x) => x > line.last);
  if (start < 0) return line;
  const isGap = tail.x[start] - line.last > Math.max(line.gap, tail.gap);
  const put = (own, others) => [...own, ...(isGap ? [null] : []), ...others.slice(start)];
  const hasBand = line.low || tail.low;
  return {
    x: [...line.x, ...(isGap ? [(line.last + tail.x[start]) / 2] : []), ...tail.x.slice(start)],
    mean: put(line.mean, tail.mean),
    ...(hasBand ? { low: put(line.low ?? line.mean, tail.low ?? tail.mean), high: put(line.high ?? line.mean, tail.high ?? tail.mean) } : {}),
    total: line.total + tail.total - tail.mean.slice(0, start).filter((value) => value !== null).length,
    gap: line.gap,
    last: tail.last,
  };
}

const valuesOf = ({ mean }) => mean.filter((value) => value !== null).length;

/** Whether the window holds more points of the chart than there are at hand. */
export const lacksDetail = (chart) => [...chart.base.values()].some((line) => valuesOf(line) < line.total);

/** Bring the points inside the window from `from` to `to` (null: open) for these charts, in one request. */
export async function bringDetail(at, charts, { from, to }, signal) {
  const window = { ...(from === null ? {} : { from }), ...(to === null ? {} : { to }) };
  for (const [chart, lines] of await read(at, charts, window, signal)) chart.detail = { from, to, lines };
}

const inWindow = (x) => (state.from === null || x >= state.from) && (state.to === null || x <= state.to);

/** What is drawn of a chart: its lines with {label, place}, and `shown` and `total`, which count the points in the window. */
export function drawn(chart) {
  const hasWindow = state.from !== null || state.to !== null;
  const detail = hasWindow && chart.detail?.from === state.from && chart.detail?.to === state.to ? chart.detail : null;
  return chart.lines.flatMap(({ key, label, place = chart.lines.findIndex((line) => line.key === key) }) => {
    const base = chart.base.get(key);
    if (!base) return [];
    const part = detail?.lines.get(key);
    const line = part ? spliced(base, part) : base;
    const shown = hasWindow ? line.x.filter((x, index) => line.mean[index] !== null && inWindow(x)).length : valuesOf(base);
    const late = part ? base.x.filter((x, index) => x > part.last && base.mean[index] !== null && inWindow(x)).length : 0;
    const total = !hasWindow ? base.total : part ? part.total + late : valuesOf(base) < base.total ? null : shown;
    return [{ ...line, key, label, place, shown, total }];
  });
}

// The whole line with the finer part in the place of what it covers.
function spliced(whole, part) {
  const before = whole.x.findIndex((x) => x >= part.x[0]);
  const behind = whole.x.findIndex((x) => x > part.last);
  const put = (all, some) => [...all.slice(0, before < 0 ? all.length : before), ...some, ...(behind < 0 ? [] : all.slice(behind))];
  const hasBand = whole.low || part.low;
  return {
    ...whole, x: put(whole.x, part.x), mean: put(whole.mean, part.mean),
    ...(hasBand ? { low: put(whole.low ?? whole.mean, part.low ?? part.mean), high: put(whole.high ?? whole.mean, part.high ?? part.mean) } : {}),
  };
}

/** Of these lines what lies in the window: [{x, mean, low, high}] without gaps. */
export function inside({ x, mean, low, high }) {
  const found = [];
  for (let index = 0; index < x.length; index += 1) {
    if (mean[index] !== null && inWindow(x[index])) found.push({ x: x[index], mean: mean[index], low: (low ?? mean)[index], high: (high ?? mean)[index] });
  }
  return found;
}
