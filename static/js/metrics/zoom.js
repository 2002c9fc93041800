// The window that all charts share, as state and in its fields.

import { fromPlot, toPlot } from "./plot.js";
import { change, state } from "./state.js";

const [fromField, toField, reset] = ["metric-from", "metric-to", "metric-reset"].map((id) => document.getElementById(id));

const DIGITS = { step: 0, relative: 2, wall: 3, epoch: 4 };
const round = (value) => Number(value.toFixed(DIGITS[state.x] ?? 4));

function choose(first, last) { change({ from: first === null ? null : round(first), to: last === null ? null : round(last) }); }

/** The axis of all charts (charts/window.js). */
export const axis = { fromPlot, choose };

// --- the fields ---

const spell = (x) => (x === null ? "" : state.x === "wall" ? new Date(x * 1000).toISOString().slice(0, 19) : String(Number(toPlot(x).toPrecision(9))));

function typed(field) {
  const text = field.value.trim();
  if (!text) return null;
  const value = state.x === "wall" ? Date.parse(text.endsWith("Z") ? text : `${text}Z`) / 1000 : fromPlot(text.replaceAll(",", ""));
  return Number.isFinite(value) ? value : undefined;
}

/** Show the window in the fields; one that somebody types in is left alone. */
export function showWindow() {
  for (const [field, value] of [[fromField, state.from], [toField, state.to]]) {
    if (document.activeElement !== field) field.value = spell(value);
    field.setCustomValidity("");
  }
  reset.disabled = state.from === null && state.to === null;
}

function read() {
  const [first, last] = [typed(fromField), typed(toField)];
  fromField.setCustomValidity(first === undefined ? "This is not a value on the axis." : "");
  toField.setCustomValidity(last === undefined || (first !== null && last !== null && last < first) ? "This must be a value on the axis, not less than the first one." : "");
  if (fromField.reportValidity() && toField.reportValidity()) choose(first, last);
}

fromField.addEventListener("change", read);
toField.addEventListener("change", read);
reset.addEventListener("click", () => choose(null, null));
