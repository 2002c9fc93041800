// A rank's menu, and the answer to "What is it doing?": the rank's Python stack as it is now.

import { toLogin } from "./live.js";
import { express } from "./rank_box.js";
import { filter } from "./state.js";
import { isChosen, only, toggle } from "./rank_choice.js";
import { describe } from "./rank_look.js";

const root = document.getElementById("log");
const at = root.querySelector(".ranks").dataset.at;
let menu = null;

/** The menu of a rank under an element, which gets the focus back. */
export function openMenu(entry, anchor) {
  menu?.remove();
  menu = document.createElement("div");
  menu.className = "rank-menu panel";
  menu.popover = "auto";
  menu.setAttribute("role", "menu");
  menu.setAttribute("aria-label", `Rank ${entry.rank}`);
  const said = document.createElement("p");
  said.className = "hint";
  said.textContent = describe(entry);
  menu.append(said, ...items(entry).map(([words, act]) => item(words, () => { menu.hidePopover(); act(); })));
  menu.addEventListener("toggle", (event) => { if (event.newState === "closed") { event.target.remove(); anchor.focus({ preventScroll: true }); } });
  menu.addEventListener("keydown", moveInMenu);
  root.append(menu);
  menu.showPopover();
  place(menu, anchor.getBoundingClientRect());
  menu.querySelector("[role=menuitem]").focus();
}

function items({ rank, host }) {
  const beside = [...new Set([...filter.ranks.filter((other) => other >= 0).slice(0, 7), rank])];
  return [
    ["What is it doing?", () => whatIsItDoing({ rank, host })],
    ["Only this rank", () => { if (!(isChosen(rank) && filter.ranks.length === 1)) only(rank); }],
    [filter.ranks.length && isChosen(rank) ? "Remove from view" : "Add to view", () => toggle(rank)],
    ["All but this rank", () => express(`!${rank}`)],
    [`All of ${host}`, () => express(`host:${host}`)],
    [beside.length > 1 ? `Side by side: ${beside.join(", ")}` : "Side by side with the next", () => besides(beside)],
  ];
}

function besides(ranks) {
  const both = ranks.length > 1 ? ranks : [ranks[0], ranks[0] + 1];
  location.href = `${at}/logs/columns?ranks=${both.join()}`;
}

function item(words, act) {
  const button = document.createElement("button");
  button.className = "plain";
  button.setAttribute("role", "menuitem");
  button.textContent = words;
  button.addEventListener("click", act);
  return button;
}

function moveInMenu(event) {
  const all = [...event.currentTarget.querySelectorAll("[role=menuitem]")];
  const now = all.indexOf(document.activeElement);
  const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: -1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  all.at(to % all.length).focus();
}

function place(element, { left, bottom, top }) {
  const { width, height } = element.getBoundingClientRect();
  element.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  element.style.top = `${bottom + 4 + height > innerHeight ? Math.max(8, top - height - 4) : bottom + 4}px`;
}

// --- the stack ---

/** Ask the rank for its stack and show it. */
export async function whatIsItDoing({ rank, host }) {
  const dialog = document.createElement("dialog");
  dialog.className = "stack apart";
  dialog.setAttribute("aria-label", `What is rank ${rank} doing?`);
  const [title, said, box, code, close] = ["h2", "p", "pre", "code", "button"].map((tag) => document.createElement(tag));
  title.textContent = `What is rank ${rank} on ${host} doing?`;
  said.className = "hint";
  said.setAttribute("role", "status");
  said.textContent = "Asking it for its stack…";
  box.className = "code";
  box.tabIndex = 0;
  box.hidden = true;
  close.textContent = "Close";
  close.autofocus = true;
  close.addEventListener("click", () => dialog.close());
  box.append(code);
  dialog.append(title, said, box, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.getElementById("main").append(dialog);
  dialog.showModal();
  const answer = await stackOf(rank);
  said.textContent = answer.message ?? "";
  said.classList.toggle("failed-text", Boolean(answer.message));
  if (answer.text === undefined) return;
  said.textContent = `As of ${new Date().toISOString().slice(11, 19)} UTC.`;
  code.textContent = answer.text;
  box.hidden = false;
  close.before(copyButton(answer.text), again(dialog, { rank, host }));
}

function copyButton(text) {
  const button = document.createElement("button");
  button.textContent = "Copy";
  button.dataset.copy = text; // static/js/copy.js
  return button;
}

function again(dialog, entry) {
  const button = document.createElement("button");
  button.textContent = "Ask again";
  button.addEventListener("click", () => { dialog.close(); whatIsItDoing(entry); });
  return button;
}

/** {text}, or {message}: a sentence why there is none. */
async function stackOf(rank) {
  try {
    const answer = await fetch(`/tasks/${encodeURIComponent(root.dataset.task)}/ranks/${rank}/stack`, {
      method: "POST", headers: { Accept: "application/json", ...JSON.parse(document.body.getAttribute("hx-headers") ?? "{}") },
    });
    if (answer.redirected) toLogin();
    const data = await answer.json();
    if (answer.ok && data.text !== undefined) return { text: data.text };
    return { message: data.message ?? "The server returned no stack." };
  } catch {
    return { message: "The server could not be reached. Ask again." };
  }
}
