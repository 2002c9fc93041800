// Experiments are ticked, by mouse or keys (j, k, x, Shift+x, Esc), and the bar at the foot says what can be done to them.

import { isSingleKey } from "../frame.js";

const bar = document.getElementById("compare");
const count = bar.querySelector(".count");
const boxes = () => [...document.querySelectorAll('tbody input[name="experiment"]')];
let last = null; // the box that was ticked last: Shift ticks as far as here

function show() {
  const all = boxes();
  const ticked = all.filter((box) => box.checked).length;
  bar.hidden = ticked === 0;
  const words = ticked ? `${ticked} selected` : "";
  if (count.textContent !== words) count.textContent = words;
  const allEnded = ticked > 0 && all.every((box) => !box.checked || "ended" in box.closest("tr").dataset);
  for (const button of bar.querySelectorAll("button[data-for-live]")) {
    button.disabled = allEnded;
    button.title = allEnded ? "All selected experiments have ended" : "";
  }
  const every = document.getElementById("tick-all");
  if (!every) return;
  every.hidden = false;
  every.checked = ticked > 0 && ticked === all.length;
  every.indeterminate = ticked > 0 && ticked < all.length;
}

function tickAll(on) {
  for (const box of boxes()) box.checked = on;
  show();
}

function tickAsFarAs(box) {
  const all = boxes();
  const [from, to] = [all.findIndex((each) => each.id === last), all.indexOf(box)].sort((a, b) => a - b);
  for (const each of all.slice(Math.max(from, 0), to + 1)) each.checked = box.checked;
}

document.addEventListener("change", ({ target }) => {
  if (target.id === "tick-all") tickAll(target.checked);
  else if (target.name === "experiment") show();
});
document.addEventListener("click", (event) => {
  if (event.target.name !== "experiment") return;
  if (event.shiftKey && last) { tickAsFarAs(event.target); show(); }
  last = event.target.id;
});
document.getElementById("tick-none").addEventListener("click", () => tickAll(false));
document.addEventListener("htmx:afterSwap", show);

document.addEventListener("keydown", (event) => {
  if (!isSingleKey(event)) return;
  if (event.key === "Escape") { tickAll(false); return; }
  const step = { j: 1, k: -1 }[event.key];
  const all = boxes();
  const at = all.findIndex((box) => box.closest("tr").contains(document.activeElement));
  if (step && all.length) {
    event.preventDefault();
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
    next.focus();
    next.closest("tr").scrollIntoView({ block: "nearest" });
  } else if (event.key.toLowerCase() === "x" && at >= 0) {
    event.preventDefault();
    const box = all[at];
    box.checked = !box.checked;
    if (event.shiftKey && last) tickAsFarAs(box);
    last = box.id;
    show();
  }
});
show();
