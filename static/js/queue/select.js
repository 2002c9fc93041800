// Which jobs are selected: kept while live updates replace the rows, and sent whole with every edit of the bar, which
// is there as long as something is selected.

const bar = document.getElementById("bulk");
const all = document.getElementById("select-all");
const count = document.getElementById("selected-count");
const chosen = new Set();
let last = null; // the box that was clicked last, where a Shift range begins

const boxes = () => [...document.querySelectorAll("input[name=job][form=bulk]")];

export function toggle(row) {
  const box = row.querySelector("input[name=job]");
  if (!box) return;
  box.checked = !box.checked;
  note(box);
  tell();
}

export function clear() {
  const had = chosen.size > 0;
  chosen.clear();
  restore();
  return had;
}

function selectShown() {
  for (const each of boxes()) { each.checked = true; note(each); }
  tell();
}

function note(box) {
  if (box.checked) chosen.add(box.value);
  else chosen.delete(box.value);
}

function tell() {
  const shown = boxes();
  const marked = shown.filter((box) => box.checked).length;
  all.checked = marked > 0 && marked === shown.length;
  all.indeterminate = marked > 0 && marked < shown.length;
  bar.dataset.selected = chosen.size;
  const text = chosen.size ? `${chosen.size} selected` : "";
  if (count.textContent !== text) count.textContent = text;
}

function restore() {
  for (const box of boxes()) box.checked = chosen.has(box.value);
  tell();
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (box === all) {
    if (all.checked) selectShown();
    else clear();
  } else if (box.matches("input[name=job][form=bulk]")) {
    note(box);
    tell();
  }
});

document.addEventListener("click", (event) => {
  const box = event.target;
  if (!box.matches?.("input[name=job][form=bulk]")) return;
  if (event.shiftKey && last) {
    const shown = boxes();
    const ends = [shown.findIndex((each) => each.value === last), shown.indexOf(box)].sort((a, b) => a - b);
    if (ends[0] >= 0) for (const each of shown.slice(ends[0], ends[1] + 1)) { each.checked = box.checked; note(each); }
  }
  last = box.value;
});

if (bar) {
  document.getElementById("select-shown").addEventListener("click", selectShown);
  document.getElementById("select-none").addEventListener("click", () => { clear(); all.focus(); });
  bar.addEventListener("formready", (event) => {
    event.detail.delete("job");
    for (const job of chosen) event.detail.append("job", job);
  });
  document.addEventListener("queueedited", () => { chosen.clear(); restore(); });
  new MutationObserver(restore).observe(document.getElementById("main"), { childList: true, subtree: true });
  for (const box of boxes()) note(box); // what the browser kept over a reload
  tell();
}
