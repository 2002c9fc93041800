// The ranks of a log. Up to 16 have a chip each: a click or Enter shows only that rank, with Ctrl or Shift it is added, the
// menu key or its arrow opens its menu. More than 16 have a box for an expression (logs/rank_box.js) and a heat map
// (logs/rank_map.js).

import { isSingleKey } from "../frame.js";
import { failure, onFailure } from "./failure.js";
import { onStatus, state } from "./live.js";
import { showBox } from "./rank_box.js";
import { openMenu } from "./rank_menu.js";
import { showPulse } from "./pulse.js";
import { filter, onChange } from "./state.js";
import { say } from "./told.js";
import { NO_RANK, all, choose, isChosen, only } from "./rank_choice.js";
import { ago, describe, hueOf, sentence, short, write } from "./rank_look.js";

const MOST_CHIPS = 16;
const MOST_COLUMNS = 8;

const bar = document.querySelector("#log .ranks");
const marks = document.getElementById("rank-marks");
const beside = document.getElementById("rank-beside");
const chips = new Map([["all", { button: bar.querySelector('[data-rank="all"]') }], [NO_RANK, { button: bar.querySelector('[data-rank="-1"]') }]]);

let known = new Set(); // ranks that were marked when the server spoke last

function show(entries) {
  const ranks = entries.filter(({ rank }) => rank >= 0);
  const isMany = ranks.length > MOST_CHIPS;
  if (isMany) dropChips();
  else for (const entry of ranks) showChip(entry);
  showBox(isMany, ranks);
  showPulse(ranks, isMany);
  showMarks(ranks.filter(({ mark }) => mark));
  showBar();
  markChosen();
  linkBeside();
}

// A choice among none or one is none.
function showBar() {
  const ranks = state.ranks.filter(({ rank }) => rank >= 0);
  bar.hidden = ranks.length < 2 && !filter.ranks.length && !filter.expression;
}

// --- chips ---

function showChip(entry) {
  const chip = chips.get(entry.rank) ?? makeChip(entry.rank);
  chip.entry = entry;
  write(chip.count, short(entry.lines));
  const failed = failure();
  const exit = failed.rank === entry.rank ? failed.exit ?? "failed" : "";
  write(chip.age, entry.mark ? ["holds up", ago(entry.stepAge)].filter(Boolean).join(" ") : exit || (state.ended ? "" : ago(entry.age)));
  chip.whole.classList.toggle("marked", Boolean(entry.mark || exit));
  const says = `${describe(entry)}${exit ? ` It failed first (${exit}).` : ""} Click to show only this rank; Ctrl or Shift adds it.`;
  if (chip.button.title !== says) chip.button.title = says;
}

function makeChip(rank) {
  const whole = document.createElement("span");
  whole.className = `rank-chip ${hueOf(rank)}`;
  const button = document.createElement("button");
  button.className = "pill";
  button.dataset.rank = rank;
  button.tabIndex = -1;
  const [name, count, age] = ["b", "small", "small"].map((tag) => document.createElement(tag));
  name.textContent = rank;
  age.className = "age";
  button.append(name, count, age);
  const more = document.createElement("button");
  Object.assign(more, { className: "more", tabIndex: -1, textContent: "▾", title: `More on rank ${rank}` });
  more.setAttribute("aria-label", `More on rank ${rank}`);
  more.setAttribute("aria-haspopup", "menu");
  more.dataset.menu = rank;
  whole.append(button, more);
  const chip = { whole, button, count, age };
  const after = [...chips].filter(([other]) => typeof other === "number" && other > rank).sort(([one], [other]) => one - other)[0];
  bar.insertBefore(whole, after?.[1].whole ?? beside);
  chips.set(rank, chip);
  return chip;
}

function dropChips() {
  for (const [rank, chip] of chips) if (chip.whole) { chip.whole.remove(); chips.delete(rank); }
}

function markChosen() {
  for (const [rank, { button }] of chips) {
    button.setAttribute("aria-pressed", rank === "all" ? !filter.ranks.length && !filter.expression : isChosen(rank));
  }
}

// The columns of the chosen ranks, or of the first few.
function linkBeside() {
  const chosen = filter.expression || filter.ranks.filter((rank) => rank >= 0).slice(0, MOST_COLUMNS).join();
  const query = new URLSearchParams(chosen && { ranks: chosen });
  if (filter.level) query.set("level", filter.level);
  beside.href = `${bar.dataset.at}/logs/columns${query.size ? `?${query}` : ""}`;
}

// A mark is said in words; the newest known sentence of each marked rank, the first three of them. A new one is told once
// to those who listen.
function showMarks(marked) {
  marks.hidden = !marked.length;
  const news = marked.filter(({ rank }) => !known.has(rank));
  if (news.length) say(news.length === 1 ? sentence(news[0].mark) : `${news.length} ranks are holding up their gang.`);
  known = new Set(marked.map(({ rank }) => rank));
  const said = marked.slice(0, 3).map(({ mark }) => sentence(mark)).join(" ");
  write(marks, marked.length > 3 ? `${said} And ${marked.length - 3} more.` : said);
}

// --- by click and by key ---

function act(rank, event) {
  if (rank === "all") all();
  else choose(rank, event);
}

const rankOf = (element) => (element.dataset.rank === "all" ? "all" : Number(element.dataset.rank));

bar.addEventListener("click", (event) => {
  const chip = event.target.closest("[data-rank]");
  const more = event.target.closest("[data-menu]");
  if (chip) act(rankOf(chip), event);
  else if (more) openMenu(chips.get(Number(more.dataset.menu)).entry, more);
});

bar.addEventListener("contextmenu", (event) => {
  const entry = chips.get(Number(event.target.closest("[data-rank]")?.dataset.rank))?.entry;
  if (!entry) return;
  event.preventDefault();
  openMenu(entry, event.target.closest("[data-rank]"));
});

bar.addEventListener("keydown", (event) => {
  const chip = event.target.closest("[data-rank]");
  if (!chip || event.altKey) return;
  const row = [...bar.querySelectorAll("[data-rank]")];
  const to = { ArrowLeft: row.indexOf(chip) - 1, ArrowRight: row.indexOf(chip) + 1, Home: 0, End: row.length - 1 }[event.key];
  const entry = chips.get(rankOf(chip))?.entry;
  if (to !== undefined) focus(row, Math.max(0, Math.min(row.length - 1, to)));
  else if (event.key === "ArrowDown" && entry) openMenu(entry, chip);
  else if (event.key === "Enter" || event.key === " ") act(rankOf(chip), event); // with Ctrl a browser clicks nothing
  else return;
  event.preventDefault();
});

function focus(row, index) {
  row.forEach((chip, at) => { chip.tabIndex = at === index ? 0 : -1; });
  row[index].focus();
}

document.addEventListener("keydown", (event) => {
  if (!isSingleKey(event)) return;
  if (event.key === "a") all();
  else if (/^\d$/.test(event.key)) only(Number(event.key));
});

onStatus(show);
onFailure(() => { for (const { entry } of chips.values()) if (entry) showChip(entry); });
onChange(() => { showBar(); markChosen(); linkBeside(); });
showBar();
markChosen();
linkBeside();
