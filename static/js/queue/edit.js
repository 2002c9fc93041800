// Sends edits of the queue, and shows what comes back over the page: a dialog, a question, or what was done with its Undo.
// Every address also works as a plain page; the header below asks for the part alone.

const PART = { "HX-Request": "true" };
const TOAST_MS = 20_000;
let sending = false;

export const back = () => location.pathname + location.search;

// The part of an address, shown over the page.
export async function open(address) {
  const url = new URL(address, location.href);
  url.searchParams.set("back", back());
  await exchange(url, { headers: PART });
}

// An edit of the queue: fields as [name, value] pairs, as a form would send them.
export function edit(fields) {
  const body = new FormData();
  for (const [name, value] of [["back", back()], ...fields]) body.append(name, value);
  return post("/jobs/edits/make", body);
}

export async function post(address, body, form = null) {
  if (sending) return;
  sending = true;
  wrongIn(form, null);
  try {
    if (!body.has("csrfmiddlewaretoken")) body.append("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
    await exchange(address, { method: "POST", body, headers: PART }, form);
  } finally {
    sending = false;
  }
}

async function exchange(address, request, form = null) {
  let answer;
  try { answer = await fetch(address, request); } catch { say("The server could not be reached; nothing was changed."); return; }
  if (new URL(answer.url).pathname === "/login") { location.reload(); return; }
  const holder = document.createElement("template");
  holder.innerHTML = await answer.text();
  const part = holder.content.querySelector("[data-what]");
  if (part) show(part, form);
  else say(`The server answered ${answer.status}; nothing was changed.`);
}

// The sentence of a refusal beside the field of the bar that it is about; null takes it away. Is there such a field?
function wrongIn(form, part) {
  const place = form?.querySelector(".error");
  if (!place) return false;
  const field = part?.dataset.field ? form.elements.namedItem(part.dataset.field) : null;
  form.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
  place.textContent = field ? part.querySelector("p").textContent.trim() : "";
  if (!field) return false;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", place.id);
  field.focus();
  return true;
}

function show(part, form) {
  const what = part.dataset.what;
  if (what === "refused" && wrongIn(form, part)) return;
  if (what === "dialog" || what === "ask") { inDialog(part); return; }
  if (what === "done") {
    dialogNow()?.close();
    for (const live of document.querySelectorAll("[data-topics]")) htmx.trigger(live, "wake");
    const undo = document.getElementById("undo-last");
    if (undo && part.querySelector("form")) undo.hidden = false;
    document.dispatchEvent(new Event("queueedited"));
  }
  toast(part);
}

const dialogNow = () => document.querySelector("dialog.over");

function inDialog(part) {
  let dialog = dialogNow();
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.className = "over apart";
    dialog.setAttribute("aria-labelledby", "manage-title");
    dialog.addEventListener("close", () => dialog.remove());
    document.getElementById("main").append(dialog);
  }
  dialog.classList.toggle("wide", part.dataset.what === "dialog");
  dialog.replaceChildren(part);
  if (!dialog.open) dialog.showModal();
  htmx.process(dialog);
  const wrong = [...dialog.querySelectorAll(".field")].find((field) => field.querySelector(".error")?.textContent);
  const first = wrong?.querySelector("input, select")
    ?? dialog.querySelector("[autofocus], .field input:not([disabled])");
  first?.focus();
  first?.select?.(); // what is typed replaces the value
}

function toast(part) {
  const place = document.getElementById("toasts");
  place.replaceChildren(part);
  const leave = () => {
    if (part.matches(":hover, :focus-within")) setTimeout(leave, TOAST_MS / 4);
    else part.remove();
  };
  setTimeout(leave, TOAST_MS);
}

export function say(sentence) {
  const part = document.createElement("div");
  part.className = "toast refused";
  const text = document.createElement("p");
  text.textContent = sentence;
  part.append(text);
  toast(part);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("dialog.over form, #toasts form, .queue-menu, #bulk") || event.defaultPrevented) return;
  event.preventDefault();
  const body = new FormData(form, event.submitter);
  form.dispatchEvent(new CustomEvent("formready", { bubbles: true, detail: body }));
  post(event.submitter?.getAttribute("formaction") ?? form.getAttribute("action"), body, form);
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-dialog], [data-close]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (!link.matches("[data-close]")) { event.preventDefault(); open(link.href); return; }
  const over = link.closest("dialog.over, .toast");
  if (!over) return;
  event.preventDefault();
  if (over.matches("dialog")) over.close();
  else over.remove();
});
