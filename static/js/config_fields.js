// Fields beside a text of YAML, each for one line of it: a field changes its line, and the text its fields. The text alone
// is sent. Where it holds changes only, what they change is shown, too (the text in #config-base).

import { change } from "./editor.js";
import { drop, find, items, leaves, lineOf, put, read } from "./yaml_lines.js";

const panel = document.getElementById("config-fields");
const box = document.getElementById("config");
const base = document.getElementById("config-base");
let typing = null; // the field that changes the text at the moment
const rows = new Map(); // the path of a value, as JSON -> its row

for (const input of panel.querySelectorAll("[data-path]")) {
  const path = input.dataset.path.split(".");
  rows.set(JSON.stringify(path), row(path, input.closest(".field"), input, true));
}
box.addEventListener("input", show);
document.addEventListener("checked", mark);
show();
mark();

function row(path, field, input, isOptional) {
  const error = document.createElement("p");
  error.className = "error";
  error.id = `${input.id}-error`;
  error.hidden = true;
  input.setAttribute("aria-describedby", error.id);
  field.append(error);
  const boxes = input.localName === "summary" ? [...field.querySelectorAll("input[type=checkbox]")] : null;
  const each = { path, field, input, error, boxes, line: 0 };
  field.addEventListener("input", (event) => {
    event.stopPropagation(); // what is sent changes with the text
    const value = boxes ? boxes.filter(({ checked }) => checked).map((one) => one.value) : input.value;
    const isUsual = boxes ? sameNames(value, each.usual) : isOptional && !value;
    const text = isUsual ? drop(box.value, each.path) : put(box.value, each.path, value);
    if (text === null || text === box.value) return;
    typing = input;
    change(box, text);
    typing = null;
  });
  return each;
}

const sameNames = (some, others) => [...some].sort().join() === [...others].sort().join();

/** The pool that the text means, as far as it can be told; a template may name another one. */
function poolOf(root, below) {
  const named = [root, below].map((map) => map && find(map, ["resources", "resource_pool"])?.text).find(Boolean);
  if (named || panel.dataset.pool) return named || panel.dataset.pool;
  return box.form.elements.template?.value ? "" : panel.querySelector("[data-default]")?.value ?? "";
}

/** Tick the hosts that the text names, and offer those of its pool. */
function tick(each, node, usual, pool) {
  const own = node ? items(box.value, node) : node;
  each.usual = (usual && items(base.value, usual)) || [];
  const names = own ?? each.usual;
  for (const one of each.boxes) {
    one.checked = names.includes(one.value);
    one.disabled = own === null;
    const label = one.closest("label");
    label.hidden = !one.checked && Boolean(pool) && label.dataset.pool !== pool;
  }
  each.line = node ? lineOf(box.value, node.start) : 0;
  each.input.querySelector("span").textContent = own === null ? "see the text" : names.join(", ") || "any";
}

/** Let the fields say what the text says, but for the one that is being typed in. */
function show() {
  const root = read(box.value);
  const below = base && read(base.value);
  for (const each of rows.values()) {
    const [node, usual] = [root, below].map((map) => map && find(map, each.path));
    if (each.boxes) tick(each, node, usual, poolOf(root, below));
    else if (!each.isParameter) fill(each, node, usual);
  }
  const found = new Map();
  for (const map of [below, root]) {
    const parameters = map && find(map, ["hyperparameters"]);
    for (const [path, value, at] of parameters?.kind === "map" ? leaves(parameters, ["hyperparameters"]) : []) {
      const constant = find(value, ["type"])?.text === "const" ? find(value, ["val"]) : null;
      const whole = constant ? [...path, "val"] : path;
      const key = JSON.stringify(whole);
      found.set(key, { whole, title: path.slice(1).join("."), isField: ["scalar", "empty"].includes((constant ?? value).kind),
        value: map === root ? constant ?? value : undefined, usual: map === below ? constant ?? value : found.get(key)?.usual,
        line: map === root ? lineOf(box.value, at) : 0 });
    }
  }
  for (const [key, each] of rows) {
    const now = found.get(key);
    if (each.isParameter && now?.isField !== each.isField && ![document.activeElement, typing].includes(each.input)) { each.field.remove(); rows.delete(key); }
  }
  for (const [key, one] of found) {
    if (!rows.has(key)) rows.set(key, parameter(one));
    const each = rows.get(key);
    each.line = one.line;
    if (one.isField) fill(each, one.value, one.usual);
    else Object.assign(each.go, { hidden: !one.line, textContent: `line ${one.line}` }).dataset.toLine = one.line;
  }
  panel.querySelector("#config-parameters").hidden = !found.size;
}

function parameter({ whole, title, isField, usual }) {
  const field = document.createElement("div");
  field.className = "field";
  const label = document.createElement(isField ? "label" : "span");
  label.className = "mono";
  label.textContent = title;
  field.append(label);
  panel.querySelector("#config-parameters .fields").append(field);
  if (!isField) {
    const note = document.createElement("p");
    const go = document.createElement("button");
    go.type = "button";
    go.className = "plain";
    note.className = "hint";
    note.append("several values ", go);
    field.append(note);
    return { path: whole, field, go, isParameter: true, isField, line: 0 };
  }
  const input = document.createElement("input");
  input.type = "text";
  input.autocomplete = "off";
  input.id = `config-${title}`;
  label.htmlFor = input.id;
  field.append(input);
  return { ...row(whole, field, input, usual !== undefined), isParameter: true, isField };
}

function fill(each, node, usual) {
  const { input } = each;
  input.disabled = node === null || ["map", "other"].includes(node?.kind);
  if (node) each.line = lineOf(box.value, node.start);
  else if (!each.isParameter) each.line = 0;
  if (input.localName !== "select") input.placeholder = usual?.text ?? input.dataset.usual ?? "";
  else if (usual?.text) input.options[0].textContent = `as before (${usual.text})`;
  if ((input === document.activeElement || input === typing) && input.localName !== "select") return;
  const text = node?.text ?? "";
  if (input.localName === "select" && ![...input.options].some((option) => option.value === text)) input.add(new Option(`${text} (not found)`, text));
  input.value = text;
}

/** Say at a field what the check says about its line. */
function mark() {
  const faults = [...document.querySelectorAll("#checked li[data-line]")].map((fault) => ({
    line: Number(fault.dataset.line), path: fault.querySelector(":scope > code")?.textContent ?? "", words: fault.textContent.trim(),
  }));
  for (const { path, line, input, error } of rows.values()) {
    if (!input) continue;
    const dotted = path.join(".");
    const wrong = faults.find((fault) => fault.line === line && (fault.path === dotted || dotted.startsWith(`${fault.path}.`)));
    input.removeAttribute("aria-invalid");
    if (wrong) input.setAttribute("aria-invalid", "true");
    error.hidden = !wrong;
    error.textContent = wrong?.words.replace(/\s+/g, " ") ?? "";
  }
}
