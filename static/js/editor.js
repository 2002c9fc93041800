// A textarea for YAML: numbered lines, Tab that indents and does not trap (Esc, then Tab leaves), Enter that keeps the
// indentation, and all faults as one types: the form is sent to be checked once no key was pressed for a while.

const CHECK_AFTER_MS = 400;
const AGAIN_AFTER_MS = 3_000;
const INDENT = "  ";

for (const box of document.querySelectorAll("[data-editor]")) setUp(box);

function setUp(box) {
  const field = box.querySelector("textarea");
  const gutter = box.querySelector(".gutter");
  const numbers = document.createElement("div");
  numbers.className = "line-numbers";
  gutter.replaceChildren(numbers);
  let leaving = false; // Esc was pressed: the next Tab moves on

  const count = () => {
    const lines = field.value.split("\n").length;
    while (numbers.childElementCount > lines) numbers.lastElementChild.remove();
    while (numbers.childElementCount < lines) {
      const number = document.createElement("span");
      number.textContent = numbers.childElementCount + 1;
      numbers.append(number);
    }
  };
  const follow = () => { numbers.style.transform = `translateY(${-field.scrollTop}px)`; };
  const mark = () => {
    const wrong = new Map();
    for (const fault of document.querySelectorAll("#checked li[data-line]")) {
      const line = Number(fault.dataset.line);
      wrong.set(line, `${wrong.has(line) ? `${wrong.get(line)}\n` : ""}${fault.textContent.trim()}`);
    }
    [...numbers.children].forEach((number, index) => {
      const words = wrong.get(index + 1);
      number.classList.toggle("wrong", words !== undefined);
      number.title = words ?? "";
    });
    field.toggleAttribute("aria-invalid", wrong.size > 0);
  };

  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { leaving = true; return; }
    if (event.key === "Tab" && !leaving && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      indent(field, event.shiftKey);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.isComposing) {
      const before = field.value.slice(field.value.lastIndexOf("\n", field.selectionStart - 1) + 1, field.selectionStart);
      const [blanks] = before.match(/^ */);
      const deeper = /:\s*$/.test(before) && !before.trimStart().startsWith("#") ? INDENT : "";
      if (blanks || deeper) { event.preventDefault(); insert(field, `\n${blanks}${deeper}`); }
    }
    if (!["Shift", "Tab"].includes(event.key)) leaving = false;
  });
  field.addEventListener("focus", () => { leaving = false; });
  field.addEventListener("blur", () => { leaving = false; });
  field.addEventListener("scroll", follow);
  field.addEventListener("input", () => { count(); mark(); });
  numbers.addEventListener("click", (event) => {
    const line = [...numbers.children].indexOf(event.target) + 1;
    if (line > 0) goTo(field, line);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-to-line]");
    if (button) goTo(field, Number(button.dataset.toLine));
  });
  document.addEventListener("checked", () => { count(); mark(); });
  new ResizeObserver(follow).observe(field);
  count();
  mark();
  keepChecked(field.form, box.dataset.editor);
}

/** Change the whole text, but only where it differs, so that Ctrl+Z takes it back; the focus stays where it is. */
export function change(field, text) {
  const was = field.value;
  let from = 0;
  let left = 0;
  while (from < Math.min(was.length, text.length) && was[from] === text[from]) from += 1;
  while (left < Math.min(was.length, text.length) - from && was.at(-1 - left) === text.at(-1 - left)) left += 1;
  const before = document.activeElement;
  const marked = before.localName === "input" && before.type === "text" ? [before.selectionStart, before.selectionEnd] : null;
  field.focus({ preventScroll: true });
  field.setSelectionRange(from, was.length - left);
  insert(field, text.slice(from, text.length - left));
  if (before === field) return;
  before.focus({ preventScroll: true });
  if (marked) before.setSelectionRange(...marked);
}

function insert(field, text) {
  // keeps what Ctrl+Z takes back; the older way is the only one that does
  const done = text ? document.execCommand("insertText", false, text) : document.execCommand("delete");
  if (!done) {
    field.setRangeText(text, field.selectionStart, field.selectionEnd, "end");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

function indent(field, back) {
  const { selectionStart: from, selectionEnd: to, value } = field;
  if (from === to && !back) { insert(field, INDENT); return; }
  const start = value.lastIndexOf("\n", from - 1) + 1;
  const lines = value.slice(start, to).split("\n");
  const changed = lines.map((line) => (back ? line.replace(/^ {1,2}/, "") : line && INDENT + line)).join("\n");
  if (changed === lines.join("\n")) return;
  field.setSelectionRange(start, to);
  insert(field, changed);
  if (from === to) {
    const caret = Math.max(start, from - (to - start - changed.length));
    field.setSelectionRange(caret, caret);
  } else field.setSelectionRange(start, start + changed.length);
}

function goTo(field, line) {
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  field.scrollTop = Math.max(0, (line - 5) * parseFloat(getComputedStyle(field).lineHeight));
}

// --- the check ---

function keepChecked(form, kind) {
  let timer = null;
  let asked = 0;
  const ask = async () => {
    const mine = ++asked;
    const body = new URLSearchParams({ kind });
    for (const [name, value] of new FormData(form)) if (typeof value === "string" && name !== "manifest") body.append(name, value);
    body.append("paths", form.dataset.paths ?? "");
    let answer;
    try {
      answer = await fetch("/experiments/check", { method: "POST", body, headers: { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value } });
    } catch {
      if (mine === asked) soon(AGAIN_AFTER_MS); // offline: what is shown stays, and submitting checks anyhow
      return;
    }
    if (mine !== asked || !answer.ok || answer.redirected) return;
    showChecked(await answer.text());
  };
  const soon = (delayMs) => { clearTimeout(timer); timer = setTimeout(ask, delayMs); };
  form.addEventListener("input", () => soon(CHECK_AFTER_MS));
  form.addEventListener("change", () => soon(CHECK_AFTER_MS));
}

/** Put what was found about the config beside it. */
export function showChecked(html) {
  const box = document.getElementById("checked");
  const scrolled = box.querySelector(".explained")?.scrollTop ?? 0;
  box.innerHTML = html;
  const list = box.querySelector(".explained");
  if (list) list.scrollTop = scrolled;
  const heading = box.querySelector("[data-faults]")?.textContent.trim();
  const told = document.getElementById("told");
  if (told && told.textContent !== heading) told.textContent = heading;
  document.dispatchEvent(new Event("checked"));
}
