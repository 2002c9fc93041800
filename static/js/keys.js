// The keyboard: `/` searches, `g` then o, e, j or h goes to a room, `?` shows the keys. Single keys act only while the focus
// is in no field, and can be switched off; the choice stays in this browser.

const OFF = "trainmaster.keys.off";
const GO_WITHIN_MS = 1500;
const ROOMS = { o: "/overview", e: "/experiments", j: "/jobs", h: "/hosts" };

let goPressedAt = 0;

export function keysAreOn() {
  try { return localStorage.getItem(OFF) === null; } catch { return true; }
}

function switchKeys(on) {
  try { if (on) localStorage.removeItem(OFF); else localStorage.setItem(OFF, "1"); } catch { /* a browser that keeps nothing */ }
}

const isField = (element) => element.closest("input:not([type=checkbox]), select, textarea, [contenteditable]") !== null;

/** Whether the key stands for something on the page rather than for what has the focus. */
export function isSingleKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return false;
  return keysAreOn() && document.querySelector("dialog[open]") === null;
}

function showHelp() {
  const dialog = document.getElementById("keys");
  if (!dialog || dialog.open) return;
  dialog.querySelector("input").checked = keysAreOn();
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (!isSingleKey(event)) return;
  if (event.key === "?") { event.preventDefault(); showHelp(); return; }
  if (event.key === "/") {
    const search = document.querySelector('[data-key="/"]');
    if (search) { event.preventDefault(); search.focus(); search.select(); }
    return;
  }
  if (event.key === "g") { goPressedAt = Date.now(); return; }
  if (ROOMS[event.key] && Date.now() - goPressedAt < GO_WITHIN_MS) location.href = ROOMS[event.key];
  goPressedAt = 0;
});

for (const button of document.querySelectorAll(".show-keys")) button.addEventListener("click", showHelp);
document.getElementById("keys-on")?.addEventListener("change", (event) => switchKeys(event.target.checked));
// in a narrow window the rooms are one line that is scrolled
document.querySelector(".room[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
