// The charts over the trials of a search: the address says what they show, and the server draws them as figures.

import { ChartPanel, made, watched } from "../charts/panel.js";
import { put } from "../charts/plot.js";
import { colors, literal, themed } from "../charts/theme.js";
import { brushed, brushing, wasBrushed } from "./brush.js";

const AGAIN_MS = 3_000;
const TYPING_MS = 500;
const TALL_PX = 320;
const section = document.getElementById("charts");
const form = document.getElementById("sweep-view");
const told = document.getElementById("sweep-told");
const reset = document.getElementById("sweep-reset");
const panels = () => [...section.querySelectorAll(":scope > article")].map((element) => element.panel);

// --- one chart ---

function laidOut({ layout }) {
  const words = (axis) => (axis?.ticktext ? { ...axis, ticktext: axis.ticktext.map(literal) } : axis);
  return {
    margin: { l: 56, r: 12, t: 10, b: 44 },
    dragmode: false,
    ...themed({ ...layout, xaxis: words(layout.xaxis), yaxis: words(layout.yaxis) }),
    annotations: layout.annotations?.map((each) => ({ ...each, text: literal(each.text), bgcolor: colors().panel, borderpad: 1 })),
  };
}

class Panel extends ChartPanel {
  constructor(figure) {
    super(figure.name, { id: figure.name, help: "chart-help" });
    this.update(figure);
    brushing(this.place, () => this.figure.brushes, change);
  }

  update(figure) {
    this.figure = figure;
    this.points.textContent = figure.note ?? "";
    this.place.setAttribute("aria-label", figure.described);
    this.place.style.height = `${figure.tall ?? TALL_PX}px`;
    if (!this.values.hidden) this.showValues(true);
  }

  async draw() {
    if (!this.isInView || this.drawn === this.figure) return;
    this.isDrawn = true;
    this.drawn = this.figure;
    await put(this.place, this.figure.data, laidOut(this.figure));
    if (this.isFollowed) return;
    this.isFollowed = true;
    this.place.on("plotly_click", ({ points: [point] }) => {
      if (!wasBrushed(this.place)) open(point.data.meta ?? point.customdata);
    });
  }

  async leave() {
    this.drawn = null;
    this.isFollowed = false; // Plotly forgets who listens
    await super.leave();
  }

  table() { return tableOf(this.figure.table); }
}

function open(trial) {
  if (Number.isInteger(trial)) location.href = `/trials/${trial}`;
}

function tableOf({ caption, heads, rows }) {
  const table = document.createElement("table");
  Object.assign(table.createCaption(), { className: "hint", textContent: caption });
  table.createTHead().insertRow().append(...heads.map((text) => made("th", { scope: "col" }, text)));
  const body = table.createTBody();
  for (const cells of rows) {
    body.insertRow().append(...cells.map((cell) => (
      Number.isInteger(cell) ? made("td", {}, made("a", { href: `/trials/${cell}` }, `Trial ${cell}`)) : made("td", { class: "mono" }, cell)
    )));
  }
  return table;
}

const watching = watched({ onSeen: (panel) => panel.draw(), onMoved: () => {} });

// --- all of them ---

let asking = null;
let timer = null;

function soon(delayMs = 0) {
  clearTimeout(timer);
  timer = setTimeout(load, delayMs);
}

async function load() {
  timer = null;
  asking?.abort();
  const mine = asking = new AbortController();
  const query = new URLSearchParams(location.search);
  query.set("part", "figures");
  try {
    const answer = await fetch(`${location.pathname}?${query}`, { headers: { Accept: "application/json" }, signal: mine.signal });
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    show((await answer.json()).figures);
    told.textContent = "";
  } catch (error) {
    if (mine.signal.aborted) return;
    told.textContent = `${error.message} Retrying.`;
    soon(AGAIN_MS);
  }
}

function show(figures) {
  const known = new Map(panels().map((panel) => [panel.name, panel]));
  const added = [];
  section.querySelector(".empty")?.remove();
  for (const figure of figures) {
    const panel = known.get(figure.name) ?? new Panel(figure);
    if (known.delete(figure.name)) { panel.update(figure); panel.draw(); } else added.push(panel);
    section.append(panel.element);
  }
  for (const panel of known.values()) watching.remove(panel);
  watching.add(added);
  for (const panel of added) panel.draw();
  if (!figures.length) section.append(made("div", { class: "panel empty" }, section.dataset.empty.replace(/\s+/g, " ")));
}

// --- the address and the form ---

/** The form as an address: fields that are empty, or as they would be without an address, are left out. */
function addressed() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  if (query.get("take") !== "step") for (const name of ["step", "margin"]) query.delete(name);
  for (const element of form.querySelectorAll("select")) {
    const usual = [...element.options].find((option) => option.defaultSelected) ?? element.options[0];
    const wasSaid = new URLSearchParams(location.search).has(element.name);
    if (element.value === usual.value && !wasSaid) query.delete(element.name);
  }
  const boxes = [...form.querySelectorAll("input[name=hp]")];
  if (boxes.every((box) => box.checked === box.defaultChecked) && !new URLSearchParams(location.search).has("hp")) query.delete("hp");
  return query;
}

function go(query) {
  const text = query.toString();
  history.pushState(null, "", `${location.pathname}${text ? `?${text}` : ""}`);
  if (reset) reset.disabled = !brushed(query);
  soon();
}

/** Fields by name and their values, a list for boxes; the form shows them and the charts follow. */
function change(changes) {
  for (const [name, value] of Object.entries(changes)) {
    for (const field of form.elements) {
      if (field.name !== name) continue;
      if (field.type === "checkbox") field.checked = value.includes(field.value);
      else field.value = value;
    }
  }
  go(addressed());
}

let typing = null;
form.addEventListener("submit", (event) => { event.preventDefault(); go(addressed()); });
form.addEventListener("change", ({ target }) => {
  if (target.name === "step") form.elements.take.value = target.value === "" ? "best" : "step";
  if (target.name === "take" && target.value === "step" && form.elements.step.value === "") { form.elements.step.focus(); return; }
  // other hyperparameters have other fields to keep by
  if (target.name === "hp" && document.getElementById("sweep-bounds")) { go(addressed()); location.reload(); return; }
  go(addressed());
});
form.addEventListener("input", ({ target }) => {
  if (target.type !== "text") return;
  clearTimeout(typing);
  typing = setTimeout(() => go(addressed()), TYPING_MS);
});
reset?.addEventListener("click", () => {
  for (const field of document.getElementById("sweep-bounds").querySelectorAll("input")) {
    if (field.type === "checkbox") field.checked = false; else field.value = "";
  }
  go(addressed());
});
addEventListener("popstate", () => location.reload());
section.addEventListener("wake", () => soon());
document.addEventListener("themechange", () => {
  for (const panel of panels()) { panel.drawn = null; panel.draw(); }
});
load();
