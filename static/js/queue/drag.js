// Dragging a row by its place puts its job right ahead of the row it is dropped before, where the pool keeps an order.
// With the keyboard: Alt and an arrow (queue/keys.js). Escape lets go.

import { moveBeside, rows } from "./keys.js";

const HANDLE = 'tr[data-job] td[data-label="#"]';
const AFTER_PX = 5;
const SCROLL_EDGE_PX = 60;
let drag = null; // {row, startY, label, target, ahead, moved}

const board = () => document.getElementById("queue");
const ordered = () => document.querySelector("#bulk[data-ordered]") !== null;

document.addEventListener("pointerdown", (event) => {
  const handle = event.target.closest?.(HANDLE);
  if (!handle || event.button !== 0 || !ordered()) return;
  event.preventDefault();
  const row = handle.parentElement;
  row.focus({ preventScroll: true });
  drag = { row, startY: event.clientY, label: null, target: null, ahead: true, moved: false };
});

document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  if (!drag.moved) {
    if (Math.abs(event.clientY - drag.startY) < AFTER_PX) return;
    begin();
  }
  aim(event.clientY);
  drag.label.style.left = `${event.clientX + 14}px`;
  drag.label.style.top = `${event.clientY + 10}px`;
  if (event.clientY < SCROLL_EDGE_PX) scrollBy(0, -12);
  else if (event.clientY > innerHeight - SCROLL_EDGE_PX) scrollBy(0, 12);
});

function begin() {
  drag.moved = true;
  drag.label = document.createElement("div");
  drag.label.className = "drag-label";
  drag.row.classList.add("dragged");
  board()?.setAttribute("data-hold", ""); // live updates wait: no row is pulled from under the pointer
  document.body.classList.add("dragging");
  document.getElementById("main").append(drag.label);
}

// Above the middle of a row it lands ahead of it; below the middle of the last one, behind it.
function aim(y) {
  const others = rows().filter((row) => row !== drag.row);
  unmark();
  const under = others.find((row) => { const box = row.getBoundingClientRect(); return y < box.top + box.height / 2; });
  drag.target = under ?? others.at(-1) ?? null;
  drag.ahead = Boolean(under);
  if (!drag.target) return;
  drag.target.classList.add(drag.ahead ? "lands-before" : "lands-behind");
  const { name, priority } = drag.target.dataset;
  const takes = priority && priority !== drag.row.dataset.priority ? `, takes priority ${priority}` : "";
  drag.label.textContent = `${drag.ahead ? "ahead of" : "behind"} ${name}${takes}`;
}

function unmark() {
  for (const row of document.querySelectorAll(".lands-before, .lands-behind")) row.classList.remove("lands-before", "lands-behind");
}

function end(drop) {
  if (!drag) return;
  const { row, target, ahead, moved, label } = drag;
  drag = null;
  unmark();
  label?.remove();
  row.classList.remove("dragged");
  board()?.removeAttribute("data-hold");
  if (moved) board()?.dispatchEvent(new Event("wake"));
  document.body.classList.remove("dragging");
  if (drop && moved && target && !stays(row, target, ahead)) moveBeside(row, target, ahead);
}

const stays = (row, target, ahead) => (ahead ? target.previousElementSibling : target.nextElementSibling) === row
  && row.dataset.priority === target.dataset.priority;

document.addEventListener("pointerup", () => end(true));
document.addEventListener("pointercancel", () => end(false));
document.addEventListener("keydown", (event) => { if (drag && event.key === "Escape") { event.preventDefault(); end(false); } }, true);
// The pointer marks no text on its way.
document.addEventListener("mousedown", (event) => { if (drag) event.preventDefault(); });
