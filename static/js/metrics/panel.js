// The panel of one chart of metrics: what it is in the state, and what is drawn of its curves.

import { ChartPanel, button, csvLink } from "../charts/panel.js";
import { csvOf, drawn } from "./curves.js";
import { draw } from "./plot.js";
import { change, state } from "./state.js";
import { reduction, sentence, tableOf } from "./values.js";

/** series: [[group, name]]; base, detail: metrics/curves.js. */
export class Panel extends ChartPanel {
  constructor(at, { name, series, pinned }, onPin) {
    const pin = button("pin", `Pin ${name}`, {}, () => onPin(this));
    const expand = button("expand", `Expand ${name}`, {}, () => change({ expand: state.expand === name ? "" : name }));
    const csv = csvLink(name);
    super(name, { help: "metric-help", before: [pin, expand], tools: [csv] });
    Object.assign(this, { at, series, base: null, detail: null, isBehind: false, pin, expand, csv });
    this.update({ series, pinned });
    this.mark();
  }

  /** What the server lists for the chart now: a metric may have joined. */
  update({ series, pinned }) {
    if (String(series) !== String(this.series)) this.isBehind = true;
    Object.assign(this, { series, isPinned: pinned });
    this.pin.setAttribute("aria-pressed", pinned);
    this.csv.href = csvOf(this.at, series);
  }

  /** Show what the state says of the panel. */
  mark() {
    this.element.classList.toggle("expanded", state.expand === this.name);
    this.expand.setAttribute("aria-pressed", state.expand === this.name);
  }

  /** Draw what is known, if the chart is in view. */
  async draw() {
    if (!this.base || !this.isInView) return;
    const curves = drawn(this);
    this.points.textContent = curves.length ? reduction(curves) : "No points.";
    this.place.setAttribute("aria-label", sentence(this.name, curves, this.base.best));
    if (!this.values.hidden) this.showValues(true);
    this.isDrawn = true;
    await draw(this.place, this.name, curves, this.base.best);
  }

  table() { return this.base && tableOf(drawn(this)); }
}
