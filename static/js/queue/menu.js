// The menu of a row: by its three dots, by right click, or by the keyboard's menu key. Arrow keys move in it. It opens
// beside what it was opened with, so that none of its items lies under the pointer.

import { say } from "./edit.js";

const EDGE_PX = 8;
const APART_PX = 4;
let menu = null;
let opener = null;
let beside = { left: 0, right: 0, top: 0, bottom: 0 };

const items = () => [...menu.querySelectorAll("[role=menuitem]")];

export function close(refocus = true) {
  if (!menu) return;
  menu.remove();
  menu = null;
  opener?.setAttribute?.("aria-expanded", "false");
  if (refocus) opener?.focus();
}

// `of`: a job's id, or the address of another menu. `at`: the box in the window beside which it opens; the menu stays
// inside the window.
export async function openFor(of, at, from) {
  close(false);
  const back = encodeURIComponent(location.pathname + location.search);
  let answer;
  try { answer = await fetch(`${of.startsWith("/") ? of : `/jobs/menu/${of}`}?back=${back}`, { headers: { "HX-Request": "true" } }); } catch { answer = null; }
  if (!answer?.ok) { say("The menu could not be loaded. What it is about may no longer exist."); return; }
  const holder = document.createElement("template");
  holder.innerHTML = await answer.text();
  const part = holder.content.querySelector("[data-what=menu]");
  if (!part) { location.reload(); return; } // the session has ended
  close(false);
  menu = part;
  opener = from;
  opener.setAttribute("aria-expanded", "true");
  document.getElementById("main").append(menu);
  beside = at;
  place();
  items()[0]?.focus({ preventScroll: true });
}

// Left of the box or right of it; where neither has room, below it or above.
function place() {
  const { width, height } = menu.getBoundingClientRect();
  const [right, bottom] = [document.documentElement.clientWidth - EDGE_PX, innerHeight - EDGE_PX];
  const fits = { left: beside.left - APART_PX - width >= EDGE_PX, right: beside.right + APART_PX + width <= right };
  const within = (at, most) => Math.max(EDGE_PX, Math.min(at, most));
  let [x, y] = [within(beside.left, right - width), within(beside.top, bottom - height)];
  if (fits.right) x = beside.right + APART_PX;
  else if (fits.left) x = beside.left - APART_PX - width;
  else y = within(beside.bottom + height <= bottom ? beside.bottom : beside.top - height, bottom - height);
  menu.style.left = `${x}px`;
  menu.style.top = `${y}px`;
}

function move(event) {
  const all = items();
  const at = all.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to !== undefined) { event.preventDefault(); all[(to + all.length) % all.length].focus(); return; }
  if (event.key === "Escape" || event.key === "Tab") { event.preventDefault(); close(); return; }
  if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey || event.key === " ") return;
  const later = [...all.slice(at + 1), ...all.slice(0, at + 1)];
  later.find((item) => item.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.focus();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-menu]");
  if (button && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    if (menu && opener === button) close();
    else openFor(button.dataset.menu, button.getBoundingClientRect(), button);
    return;
  }
  const item = event.target.closest("[role=menuitem]");
  if (menu && item?.getAttribute("aria-disabled") === "true") return;
  if (event.target.closest("dialog.confirm")) return; // a question about the menu's own form
  if (menu && !(item instanceof HTMLButtonElement)) close(Boolean(item)); // a button's form is sent first
});

document.addEventListener("contextmenu", (event) => {
  const row = event.target.closest("tr[data-job]");
  if (!row || event.shiftKey || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  const byKey = event.clientX === 0 && event.clientY === 0;
  const { clientX: x, clientY: y } = event;
  const box = row.querySelector("[data-menu]").getBoundingClientRect();
  openFor(row.dataset.job, byKey ? box : { left: x, right: x, top: y, bottom: y }, row);
});

document.addEventListener("keydown", (event) => {
  if (menu?.contains(document.activeElement)) { event.stopPropagation(); move(event); }
}, true);
document.addEventListener("submit", (event) => { if (event.target === menu) queueMicrotask(() => close()); });
for (const leave of ["wheel", "touchmove"]) addEventListener(leave, (event) => { if (!menu?.contains(event.target)) close(false); }, { passive: true });
addEventListener("resize", () => { if (menu) place(); });
