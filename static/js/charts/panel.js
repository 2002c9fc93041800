// The panel of one chart: heading, buttons, the place of the chart, and room for its values in words. Those in view are mounted.

import { erase, plotly, savePicture } from "./plot.js";

const NEAR_PX = 300; // charts so near the window are mounted before they come

export function made(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Whose charts they are, for the names of files: `trial-7`. */
const owner = document.getElementById("charts").dataset.owner;

export const button = (text, label, attributes, act) => {
  const element = made("button", { type: "button", "aria-label": label, ...attributes }, text);
  element.addEventListener("click", act);
  return element;
};

/** name: of the chart; isInView: whether it is mounted; isDrawn: whether something is drawn in its place. */
export class ChartPanel {
  constructor(name, { id = name, help = "", tools = [], before = [] } = {}) {
    Object.assign(this, { name, isInView: false, isDrawn: false });
    this.points = made("span", { class: "hint points" }, "Loading");
    this.place = made("div", { class: "chart", role: "img", tabindex: "0", "aria-label": name, ...(help ? { "aria-describedby": help } : {}) });
    this.values = made("div", { class: "values", hidden: "", tabindex: "0", role: "region", "aria-label": `Values of ${name}` });
    this.open = button("Values", `Values of ${name}`, { "aria-expanded": "false" }, () => this.showValues(this.values.hidden));
    const png = button("PNG", `Save ${name} as PNG`, {}, () => savePicture(this.place, `${owner}-${name}`));
    const header = made("header", {}, made("h2", { title: name }, name), this.points);
    const all = made("div", { class: "tools" }, ...before, this.open, png, ...tools);
    this.element = made("article", { class: "panel", id: `chart-${id}` }, header, all, this.place, this.values);
    this.element.panel = this;
    this.place.panel = this;
  }

  /** The table of values, made anew; null while there are none. */
  table() { return null; }

  async leave() {
    if (!this.isDrawn) return;
    this.isDrawn = false;
    await erase(this.place);
  }

  showValues(shows) {
    this.open.setAttribute("aria-expanded", shows);
    this.values.hidden = !shows;
    const table = shows ? this.table() : null;
    if (table) this.values.replaceChildren(table);
  }
}

/** Keeps `isInView` of panels true: {add(panels), remove(panel)}; tells `onSeen(panel)` of each that comes, then `onMoved()`. */
export function watched({ onSeen, onMoved }) {
  const inView = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.panel.isInView = isIntersecting;
      if (isIntersecting) onSeen(target.panel); else target.panel.leave();
    }
    onMoved();
  }, { rootMargin: `${NEAR_PX}px 0px` });
  const sized = new ResizeObserver(async (entries) => {
    const { Plots } = await plotly;
    for (const { target } of entries) if (target.panel.isDrawn && target.layout && target.clientWidth) Plots.resize(target);
  });
  return {
    add(panels) {
      // what stands in the window is asked for first and at once: the observers, which see further, speak after the next frame
      for (const panel of panels) {
        const { top, bottom } = panel.place.getBoundingClientRect();
        panel.isInView = top < innerHeight && bottom > 0 && panel.place.checkVisibility(); // not in what is folded
      }
      onMoved();
      for (const { place } of panels) { inView.observe(place); sized.observe(place); }
    },
    remove(panel) {
      inView.unobserve(panel.place);
      sized.unobserve(panel.place);
      panel.leave();
      panel.element.remove();
    },
  };
}

/** A table of values: a caption, heads of columns, and rows of texts. */
export function tableOf(caption, heads, rows) {
  const table = document.createElement("table");
  Object.assign(table.createCaption(), { className: "hint", textContent: caption });
  table.createTHead().insertRow().append(...heads.map((text) => made("th", { scope: "col" }, text)));
  const body = table.createTBody();
  for (const cells of rows) body.insertRow().append(...cells.map((text) => made("td", { class: "mono" }, text)));
  return table;
}
