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

// Lines in a square of 16, in the color of the text.
const ICONS = {
  pin: "M8 2l1.8 3.8 4.2.6-3 2.9.7 4.2L8 11.5l-3.7 2 .7-4.2-3-2.9 4.2-.6z",
  expand: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5 9 7M2.5 13.5 7 9",
  values: "M2.5 3.5h11v9h-11zM2.5 6.5h11M2.5 9.5h11M7 3.5v9",
  picture: "M2.5 3h11v10h-11zM2.5 11.5 6 8l2.5 2.5 2-2 3 3",
  file: "M8 2v8M4.5 6.8 8 10.2l3.5-3.4M2.5 13.5h11",
};

function icon(name) {
  const [svg, path] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button of a panel: its icon, and what it does in words. */
export function button(name, label, attributes, act) {
  const element = made("button", { type: "button", "aria-label": label, title: label, ...attributes }, icon(name));
  element.addEventListener("click", act);
  return element;
}

/** The link of a panel to all points of what it draws. */
export function csvLink(name) {
  const label = `All points of ${name} as CSV`;
  return made("a", { class: "button", download: "", "aria-label": label, title: label }, icon("file"));
}

/** name: of the chart; isInView: whether it is mounted; isDrawn: whether something is drawn in its place. */
export class ChartPanel {
  constructor(name, { id = name, help = "", tools = [], before = [] } = {}) {
    Object.assign(this, { name, isInView: false, isDrawn: false });
    this.points = made("p", { class: "hint points" }, "Loading");
    this.place = made("div", { class: "chart", role: "img", tabindex: "0", "aria-label": name, ...(help ? { "aria-describedby": help } : {}) });
    this.values = made("div", { class: "values", hidden: "", tabindex: "0", role: "region", "aria-label": `Values of ${name}` });
    this.open = button("values", `Values of ${name}`, { "aria-expanded": "false" }, () => this.showValues(this.values.hidden));
    const png = button("picture", `Save ${name} as PNG`, {}, () => savePicture(this.place, `${owner}-${name}`));
    const header = made("header", {}, made("h2", { title: name }, name), ...before, this.open, png, ...tools);
    this.element = made("article", { class: "panel", id: `chart-${id}` }, header, this.points, this.place, this.values);
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
