// The panel of one chart: heading, buttons, the place of the chart, and its table of values.

import { csvOf, drawn } from "./metric_curves.js";
import { draw, erase, savePicture } from "./metric_plot.js";
import { change, state } from "./metric_state.js";
import { reduction, sentence, tableOf } from "./metric_values.js";

function made(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const button = (text, label, attributes, act) => {
  const element = made("button", { type: "button", "aria-label": label, ...attributes }, text);
  element.addEventListener("click", act);
  return element;
};

/** name: of the chart; series: [[group, name]]; base, detail: metric_curves.js; isInView: whether it is mounted. */
export class Panel {
  constructor(at, { name, series }) {
    Object.assign(this, { at, name, series, base: null, detail: null, isInView: false, isBehind: false, isDrawn: false });
    this.points = made("span", { class: "hint points" }, "Loading");
    this.place = made("div", { class: "chart", role: "img", tabindex: "0", "aria-label": name, "aria-describedby": "metric-help" });
    this.values = made("div", { class: "values", hidden: "", tabindex: "0", role: "region", "aria-label": `Values of ${name}` });
    this.pin = button("Pin", `Pin ${name}`, {}, () => change({ pin: toggled(state.pin, name) }));
    this.expand = button("Expand", `Expand ${name}`, {}, () => change({ expand: state.expand === name ? "" : name }));
    this.open = button("Values", `Values of ${name}`, { "aria-expanded": "false" }, () => this.showValues(this.values.hidden));
    const png = button("PNG", `Save ${name} as PNG`, {}, () => savePicture(this.place, name));
    this.csv = made("a", { class: "button plain", download: "", "aria-label": `All points of ${name} as CSV` }, "CSV");
    const header = made("header", {}, made("h2", { title: name }, name), this.points);
    const tools = made("div", { class: "tools" }, this.pin, this.expand, this.open, png, this.csv);
    this.element = made("article", { class: "panel", id: `chart-${name}` }, header, tools, this.place, this.values);
    this.element.panel = this;
    this.place.panel = this;
    this.update({ series });
    this.mark();
  }

  /** What the server lists for the chart now: a metric may have joined. */
  update({ series }) {
    if (String(series) !== String(this.series)) this.isBehind = true;
    this.series = series;
    this.csv.href = csvOf(this.at, series);
  }

  /** Show what the state says of the panel. */
  mark() {
    this.element.classList.toggle("expanded", state.expand === this.name);
    this.expand.setAttribute("aria-pressed", state.expand === this.name);
    this.pin.setAttribute("aria-pressed", state.pin.includes(this.name));
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

  async leave() {
    if (!this.isDrawn) return;
    this.isDrawn = false;
    await erase(this.place);
  }

  showValues(shows) {
    this.open.setAttribute("aria-expanded", shows);
    this.values.hidden = !shows;
    if (shows && this.base) this.values.replaceChildren(tableOf(drawn(this)));
  }
}

/** The list without the name, or with it at the end. */
export const toggled = (list, name) => (list.includes(name) ? list.filter((each) => each !== name) : [...list, name]);
