// The panel of one chart of samples: what is drawn of its lines, and the same in words and as a table.

import { ChartPanel, csvLink, tableOf } from "../charts/panel.js";
import { draw, scaleFor } from "./plot.js";
import { csvOf, drawn, inside } from "./samples.js";
import { spelledTime, timeTitle } from "./state.js";

const ROWS = 40;
const SPOKEN = 8; // lines that the label of a chart names
const short = (value) => Number(value.toPrecision(4)).toString();

/** id, unit, lines: as the server lists them; hosts: that it asks for; base, detail: profiler/samples.js. */
export class SamplesPanel extends ChartPanel {
  constructor(at, chart, hosts) {
    const csv = csvLink(chart.name);
    super(chart.name, { id: chart.id, help: "profiler-help", tools: [csv] });
    Object.assign(this, { at, csv, base: null, detail: null, broughtAt: 0, isBehind: false });
    this.update(chart, hosts);
  }

  /** What the server lists for the chart now: a host may have joined, or another GPU is chosen. */
  update(chart, hosts) {
    if (this.lines && JSON.stringify([chart.lines, hosts]) !== JSON.stringify([this.lines, this.hosts])) Object.assign(this, { base: null, detail: null });
    Object.assign(this, { id: chart.id, title: chart.title, unit: chart.unit, lines: chart.lines, hosts });
    this.csv.href = csvOf(this.at, this);
  }

  async draw(span) {
    if (!this.base || !this.isInView) return;
    const lines = drawn(this);
    this.points.textContent = lines.length ? reduction(lines) : "No samples.";
    this.place.setAttribute("aria-label", this.sentence(lines));
    if (!this.values.hidden) this.showValues(true);
    this.isDrawn = true;
    await draw(this.place, this, lines, span);
  }

  /** `GPU power over time of day (UTC), in W: GPU 0 312 now, mean 290, 110 to 330; …` */
  sentence(lines) {
    const { factor, unit } = scaleFor(this.unit, lines);
    const said = lines.slice(0, SPOKEN).map((line) => {
      const points = inside(line);
      if (!points.length) return `${line.label} nothing`;
      const [last, mean, low, high] = summary(points).map((value) => short(value / factor));
      return `${line.label} ${last} at the end, mean ${mean}, ${low} to ${high}`;
    });
    const more = lines.length > SPOKEN ? `; ${lines.length - SPOKEN} more in its values` : "";
    return `${this.name} over ${timeTitle()}, in ${unit}: ${said.join("; ")}${more}`;
  }

  table() {
    if (!this.base) return null;
    const lines = drawn(this);
    const { factor, unit } = scaleFor(this.unit, lines);
    const all = lines.map((line) => inside(line));
    const heads = [timeTitle(), ...lines.map(({ label }) => `${label} (${unit})`)];
    const words = (points, of) => (points.length ? short(of(points) / factor) : "");
    const sums = ["last", "mean", "min", "max"].map((word, index) => [word, ...all.map((points) => words(points, (each) => summary(each)[index]))]);
    const times = [...new Set(all.flat().map(({ x }) => x))].sort((one, other) => one - other);
    const stride = Math.ceil(times.length / ROWS) || 1;
    const columns = all.map((points) => new Map(points.map(({ x, mean }) => [x, mean])));
    const rows = times.filter((_, index) => (times.length - 1 - index) % stride === 0);
    return tableOf(`Summary of the visible range; then ${rows.length} of ${times.length.toLocaleString("en")} rows shown. All points are in the CSV.`, heads, [
      ...sums,
      ...rows.map((x) => [spelledTime(x), ...columns.map((column) => (column.has(x) ? short(column.get(x) / factor) : ""))]),
    ]);
  }
}

function summary(points) {
  let [sum, low, high] = [0, Infinity, -Infinity];
  for (const point of points) { sum += point.mean; low = Math.min(low, point.low); high = Math.max(high, point.high); }
  return [points.at(-1).mean, sum / points.length, low, high];
}

/** `400 of 3,600 points` of each line in the window; empty where all points are drawn. */
function reduction(lines) {
  if (lines.some(({ total }) => total === null)) return "";
  const sum = (of) => lines.reduce((all, line) => all + line[of], 0);
  const [shown, total] = [sum("shown"), sum("total")];
  return shown < total ? `${shown.toLocaleString("en")} of ${total.toLocaleString("en")} points` : "";
}
