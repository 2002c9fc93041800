// Search everything: Ctrl-K opens the dialog on every page. The arrow keys go from hit to hit, Enter in the field takes
// the first. Pages that were visited lately are offered before anything is typed; they stay in this browser.
import "./confirm.js";

const KEPT = "trainmaster.visited.";
const MOST_KEPT = 8;
const AFTER_TYPING_MS = 120;
/** addresses of things, whose titles are worth a way back */
const A_THING = /^\/(experiments|trials|commands|hosts|pools|projects|templates)\/[^/+]+/;

const dialog = document.getElementById("find");
const field = dialog?.querySelector("input");
const found = dialog?.querySelector(".found");
const key = KEPT + (found?.dataset.username ?? "");
let asked = 0;
let typed = 0;

function visited() {
  try { return JSON.parse(localStorage.getItem(key) ?? "[]"); } catch { return []; }
}

function keep() {
  const address = location.pathname.match(A_THING)?.[0];
  const title = document.querySelector("main h1")?.textContent.trim().replace(/\s+/g, " ");
  if (!address || address.endsWith("/new") || !title) return;
  const others = visited().filter((each) => each.address !== address);
  const entries = [{ address, title: title.slice(0, 120) }, ...others].slice(0, MOST_KEPT);
  try { localStorage.setItem(key, JSON.stringify(entries)); } catch { /* a browser that keeps nothing */ }
}

function recent() {
  const entries = visited().filter((each) => each.address !== location.pathname && A_THING.test(each.address));
  if (!entries.length) return null;
  const section = document.createElement("section");
  const head = document.createElement("h2");
  head.id = "find-recent";
  head.textContent = "Visited lately";
  section.setAttribute("aria-labelledby", head.id);
  const list = document.createElement("ul");
  for (const { address, title } of entries) {
    const link = document.createElement("a");
    link.className = "hit";
    link.href = address;
    link.textContent = title;
    const kind = document.createElement("span");
    kind.className = "muted";
    kind.textContent = address.slice(1).replace("s/", " ");
    const item = document.createElement("li");
    item.append(link, " ", kind);
    list.append(item);
  }
  section.append(head, list);
  return section;
}

/** Show what the text finds. Resolves to whether it is still what the field says. */
async function look() {
  const mine = ++asked;
  const text = field.value.trim();
  const answer = await fetch(`/find?part&${new URLSearchParams({ q: text })}`).catch(() => null);
  if (mine !== asked) return false;
  if (answer?.redirected) { location.reload(); return false; } // the login has ended
  if (!answer?.ok) { found.textContent = "The server does not answer. Type again in a moment."; return false; }
  const html = await answer.text();
  if (mine !== asked) return false;
  found.innerHTML = html;
  const lately = text ? null : recent();
  if (lately) found.querySelector("p").after(lately);
  return true;
}

function open() {
  if (dialog.open || document.querySelector("dialog[open]")) return;
  field.value = "";
  found.replaceChildren();
  dialog.showModal();
  look();
}

async function takeFirst() {
  clearTimeout(typed);
  if (await look()) found.querySelector(".hit")?.click();
}

/** Move the focus among the field and the hits. */
function step(by) {
  const hits = [...found.querySelectorAll(".hit")];
  const at = hits.indexOf(document.activeElement) + by;
  if (at < 0) field.focus();
  else hits[Math.min(at, hits.length - 1)]?.focus();
}

if (dialog) {
  keep();
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.querySelector("[data-find]")?.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  field.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(look, AFTER_TYPING_MS);
  });
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    takeFirst();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    step(event.key === "ArrowDown" ? 1 : -1);
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}
