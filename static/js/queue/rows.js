// The rows of the departures board: kept fresh row by row, and fetched page by page while one scrolls.
// A wake-up fetches the pages that are in the window, with the versions of the rows that are here; the server leaves
// those out. A change is shown by its rows first; the numbers around the table cost as much again and follow them.
// What differs is put in place by the id of its row, so that focus, marks and the scroll position stay.

import { tell } from "../frame.js";

const queue = document.getElementById("queue");
const table = () => queue.querySelector("table.board");
const PAGE = /^\d+$/;
const NEAR_PX = 1200;
const BURST = 3; // fetches at once, then one in REFILL_MS: a change is seen at once, and a busy pool asks for little
const REFILL_MS = 1_000;
const MOST_DOUBLINGS = 4; // of that pause, while fetches fail
const OWED_MS = 2_000; // the numbers of a busy pool are no older
const LOOK_AGAIN_MS = 30_000;
const PAGES_AT_ONCE = 6;

let due = ""; // "now": something has changed; "soon": a pass has said more about what stands here
let asked = 0; // fetches of the live part, of which `fetching` are under way
let fetching = 0;
let shown = 0; // which of them is the latest that is shown
let fetchedAt = -Infinity;
let owedAt = Infinity; // since when the numbers are older than the rows
let failed = 0; // of fetches, one after the other
let allowance = BURST;
let allowedAt = 0;
let timer = null;

// --- what is asked for ---

function addressOf(pages, part) {
  const address = new URL(location.href);
  address.hash = "";
  address.searchParams.delete("page");
  if (pages.length) address.searchParams.set("pages", pages.join(","));
  address.searchParams.set("part", part);
  return address;
}

const bodies = () => [...table().tBodies];
const pagesShown = () => bodies().filter((body) => PAGE.test(body.dataset.part) && !isEmpty(body)).map((body) => Number(body.dataset.part));
const isEmpty = (body) => body.classList.contains("unloaded");
const rowsOf = (body) => [...body.rows].filter((row) => row.dataset.version);

function inView(body) {
  const { top, bottom } = body.getBoundingClientRect();
  return bottom >= -NEAR_PX && top <= innerHeight + NEAR_PX;
}

async function fetchPart(pages, part) {
  const seen = bodies().flatMap(rowsOf).map((row) => row.dataset.version).join(" ");
  const response = await fetch(addressOf(pages, part), { headers: { "X-Seen-Rows": seen, "HX-Request": "true" } });
  if (new URL(response.url).pathname === "/login") { location.reload(); return null; }
  if (!response.ok) throw new Error(`the queue answered ${response.status}`);
  const place = document.createElement("template");
  place.innerHTML = await response.text();
  return place.content;
}

// --- the live part ---

function isHeld() {
  return document.hidden || queue.hasAttribute("data-hold");
}

function wake(how) {
  due = due === "now" ? due : how;
  refresh();
}

function waitMs() {
  const now = performance.now();
  if (due === "soon") return fetchedAt + REFILL_MS * 2 ** Math.min(failed, MOST_DOUBLINGS) - now;
  allowance = Math.min(BURST, allowance + (now - allowedAt) / REFILL_MS);
  allowedAt = now;
  return (1 - allowance) * REFILL_MS;
}

async function refresh() {
  clearTimeout(timer);
  // What was asked for before a change may not know of it, and takes longer the busier the server is: one more is asked for.
  if (!due || fetching >= (due === "now" ? 2 : 1) || isHeld()) return;
  const wait = waitMs();
  if (wait > 0) {
    timer = setTimeout(refresh, wait);
    return;
  }
  const part = due === "now" && performance.now() - owedAt < OWED_MS ? "rows" : "";
  if (due === "now") allowance -= 1;
  due = "";
  fetching += 1;
  const number = (asked += 1);
  try {
    const listed = pagesShown();
    const near = bodies().filter((body) => listed.includes(Number(body.dataset.part)) && inView(body)).map((body) => Number(body.dataset.part));
    const content = await fetchPart((near.length ? near : listed).slice(0, PAGES_AT_ONCE), part);
    failed = 0;
    if (content && number > shown) {
      shown = number;
      owedAt = part ? Math.min(owedAt, performance.now()) : Infinity;
      show(content);
    }
  } catch { // a server that is away wakes this through the socket when it is back; one of several may have failed without that
    failed += 1;
    owedAt = Math.min(owedAt, performance.now());
  }
  fetching -= 1;
  fetchedAt = performance.now();
  if (owedAt < Infinity) due ||= "soon";
  refresh();
}

function show(content) {
  for (const piece of content.querySelectorAll("[data-piece]")) showPiece(piece);
  showTable(content.querySelector("table.board"));
  tell();
  queue.dispatchEvent(new CustomEvent("queue:shown", { bubbles: true }));
}

const plain = (element) => element.innerHTML.replace(/(<time[^>]*data-ago[^>]*>)[^<]*/g, "$1").replace(/ open=""/g, "");

function showPiece(fresh) {
  const old = document.getElementById(fresh.id);
  if (!old || plain(old) === plain(fresh)) return;
  const open = [...old.querySelectorAll("details[open][id]")].map((details) => details.id);
  const focus = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  if (focus && document.activeElement.matches("input")) return; // somebody types there
  old.replaceChildren(...fresh.childNodes);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focus) old.querySelector(focus)?.focus({ preventScroll: true });
}

function nameOf(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  if (element.matches("summary")) return `#${CSS.escape(element.parentElement.id)} > summary`;
  return element.hasAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null;
}

function showTable(fresh) {
  const old = table();
  const grouped = (body) => !PAGE.test(body.dataset.part);
  const changedKind = bodies().some(grouped) !== [...fresh.tBodies].some(grouped) && bodies().some((body) => rowsOf(body).length);
  if (changedKind) { location.reload(); return; } // from one's own jobs first to the plain list, or back
  old.dataset.pages = fresh.dataset.pages;
  for (const body of [...fresh.tBodies]) showBody(body);
  if ([...fresh.tBodies].some(grouped)) {
    const there = new Set([...fresh.tBodies].map((body) => body.dataset.part));
    for (const body of bodies()) if (!there.has(body.dataset.part)) body.remove();
  }
  placeholders();
}

function bodyOf(part) {
  return bodies().find((body) => body.dataset.part === part);
}

function showBody(fresh) {
  let body = bodyOf(fresh.dataset.part);
  if (!body) {
    body = fresh.cloneNode(false);
    const after = bodies().find((other) => Number(other.dataset.part) > Number(fresh.dataset.part) || other.dataset.part > fresh.dataset.part);
    table().insertBefore(body, after ?? null);
  }
  if (isEmpty(body)) {
    if (PAGE.test(body.dataset.part) && !inView(body)) return; // it has left the window since it was asked for
    fill(body);
  }
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const focus = focused && { row: focused.closest("tr")?.id, name: controlOf(focused) };
  let at = body.rows[0] ?? null;
  for (const row of [...fresh.rows]) {
    const inPlace = at && at.id === row.id; // asked before the row there may be replaced by the new one
    const now = rowFor(row);
    if (inPlace) at = now.nextElementSibling;
    else body.insertBefore(now, at);
  }
  while (at) { const next = at.nextElementSibling; at.remove(); at = next; }
  restore(focus);
}

// The row as it stands, or the new one where it differs; a mark set on the old one is set on the new one.
function rowFor(fresh) {
  const old = fresh.id ? document.getElementById(fresh.id) : null;
  if ("same" in fresh.dataset) {
    if (old?.dataset.version !== fresh.dataset.same) due = "now"; // it has left or changed since it was asked for
    return old ?? fresh;
  }
  if (!old) return fresh;
  if (isBeingRead(old)) return old;
  if (!fresh.dataset.version && old.innerHTML === fresh.innerHTML) return old;
  const [before, after] = [old, fresh].map((row) => row.querySelector('input[name="job"]'));
  if (before?.checked && after) after.checked = true;
  if (old.hasAttribute("aria-selected")) fresh.setAttribute("aria-selected", old.getAttribute("aria-selected"));
  if (old.tabIndex === 0) fresh.tabIndex = 0;
  if (old.contains(document.activeElement)) pending = { row: fresh.id, name: controlOf(document.activeElement) };
  old.replaceWith(fresh);
  return fresh;
}

let pending = null;

function isBeingRead(row) {
  const selection = getSelection();
  return !selection.isCollapsed && row.contains(selection.anchorNode);
}

function controlOf(element) {
  if (element.matches("tr")) return null;
  if (element.dataset.menu) return "[data-menu]";
  if (element.name === "job") return 'input[name="job"]';
  return element.hasAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null;
}

function restore(focus) {
  const kept = focus ?? pending;
  pending = null;
  if (!kept?.row) return;
  const row = document.getElementById(kept.row);
  const element = row && (kept.name ? row.querySelector(kept.name) : row);
  if (element && element !== document.activeElement) element.focus({ preventScroll: true });
}

// --- pages come and go with the scroll position ---

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && isEmpty(target)) load(target);
    else if (!isIntersecting && !isEmpty(target)) unload(target);
  }
}, { rootMargin: `${NEAR_PX}px 0px` });
const watched = new WeakSet();
const loading = new Set();

// A body for every later page, as high as its rows will be about.
function placeholders() {
  const last = Number(table().dataset.pages);
  const numbers = bodies().map((body) => body.dataset.part).filter((part) => PAGE.test(part)).map(Number);
  if (numbers.length) {
    for (const body of bodies()) if (PAGE.test(body.dataset.part) && Number(body.dataset.part) > last) body.remove();
    const height = heightOfOne();
    for (let number = Math.max(...numbers) + 1; number <= last; number += 1) {
      const body = document.createElement("tbody");
      body.dataset.part = String(number);
      table().append(body);
      empty(body, height);
    }
  }
  for (const body of bodies()) {
    if (!PAGE.test(body.dataset.part) || watched.has(body)) continue;
    watched.add(body);
    watcher.observe(body);
  }
  queue.classList.toggle("windowed", Math.min(...numbers) === 1); // every page comes by itself
}

function heightOfOne() {
  const body = bodies().find((each) => !isEmpty(each) && each.rows.length);
  return body ? body.getBoundingClientRect().height : 0;
}

function empty(body, height) {
  const row = document.createElement("tr");
  const cell = document.createElement("td");
  cell.colSpan = table().tHead.rows[0].cells.length;
  cell.style.height = `${Math.round(height)}px`;
  row.append(cell);
  row.setAttribute("aria-hidden", "true");
  body.classList.add("unloaded");
  body.replaceChildren(row);
}

function fill(body) {
  body.classList.remove("unloaded");
  body.replaceChildren();
}

async function load(body) {
  const page = Number(body.dataset.part);
  if (loading.has(page)) return;
  loading.add(page);
  try {
    const content = await fetchPart([page], "rows");
    if (content && body.isConnected) show(content);
  } catch {
    setTimeout(() => { if (body.isConnected && isEmpty(body) && inView(body)) load(body); }, 2_000);
  }
  loading.delete(page);
}

// Far away it gives its rows back, unless somebody works with one of them.
function unload(body) {
  if (body.contains(document.activeElement) || body.querySelector('input[name="job"]:checked')) return;
  empty(body, body.getBoundingClientRect().height);
}

if (queue) {
  queue.addEventListener("wake", (event) => {
    const topics = event.detail?.topics;
    if (!topics || topics.includes("")) owedAt = -Infinity; // whatever has changed: all of the part at once
    wake(topics?.every((topic) => topic.startsWith("plan:")) ? "soon" : "now");
  });
  document.addEventListener("visibilitychange", refresh);
  new MutationObserver(refresh).observe(queue, { attributeFilter: ["data-hold"] });
  setInterval(() => wake("soon"), LOOK_AGAIN_MS);
  placeholders();
}
