// The fields above the log: they show the state of logs/state.js and change it. Menus close with Escape and a click elsewhere.

import { onStatus } from "./live.js";
import { asQuery, change, filter, isFiltered, look, onChange } from "./state.js";
import { readTime, writeTime, zoneName } from "./times.js";

const root = document.getElementById("log");
const field = (name) => document.getElementById(`log-${name}`);
const TYPING_MS = 300;

let near = () => Date.now() / 1000;
let typing = null;

/** `timeNear()` is the time of the line on top, whose day is meant where none is written. */
export function start(timeNear) {
  near = timeNear;
  fill();
}

// --- from the fields ---

field("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(takeSearch, TYPING_MS);
});

/** Take what stands in the search field now; true when that changed something. */
export function takeSearch() {
  clearTimeout(typing);
  if (field("search").value === filter.search) return false;
  change({ search: field("search").value });
  return true;
}

for (const name of ["regex", "only"]) field(name).addEventListener("change", (event) => change({ [name]: event.target.checked }));
for (const name of ["wrap", "wide"]) field(name).addEventListener("change", (event) => change({ [name]: event.target.checked }));
field("context").addEventListener("change", (event) => change({ context: Number(event.target.value) }));
field("times").addEventListener("change", (event) => change({ times: event.target.value }));
field("level").addEventListener("change", (event) => change({ level: event.target.value }));
field("stream").addEventListener("change", (event) => change({ streams: event.target.value ? event.target.value.split(",") : [] }));
field("host").addEventListener("change", (event) => change({ hosts: event.target.value ? event.target.value.split(" ") : [] }));

const zone = () => (look.times === "local" ? "local" : "utc");

field("times-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const part = {};
  for (const name of ["from", "to"]) {
    const text = field(name).value.trim();
    part[name] = text ? readTime(text, zone(), part.from ?? near()) : null;
    if (text && part[name] === null) { complain(`“${text}” is not a time. Write 10:41, 10:41:05 or 2026-11-21 10:41.`); return; }
  }
  if (part.from !== null && part.to !== null && part.to < part.from) { complain("The range ends before it begins."); return; }
  complain("");
  change(part);
  field("time-menu").open = false;
});

field("times-clear").addEventListener("click", () => { change({ from: null, to: null }); field("time-menu").open = false; });

function complain(text) {
  field("times-error").textContent = text;
  field("times-error").hidden = !text;
}

// --- to the fields ---

function fill() {
  if (document.activeElement !== field("search") || !field("search").value.startsWith(filter.search)) field("search").value = filter.search;
  for (const name of ["regex", "only"]) field(name).checked = filter[name];
  for (const name of ["wrap", "wide"]) field(name).checked = look[name];
  field("context").disabled = !(filter.only && filter.search);
  choose(field("context"), String(filter.context), `±${filter.context} lines`);
  field("times").value = look.times;
  choose(field("level"), filter.level, `${filter.level.toLowerCase()} and above`);
  choose(field("stream"), filter.streams.join(","), filter.streams.join(" and "));
  choose(field("host"), filter.hosts.join(" "), filter.hosts.length > 2 ? `${filter.hosts.length} hosts` : filter.hosts.join(" and "));
  for (const name of ["from", "to"]) field(name).value = writeTime(filter[name], zone());
  field("time-words").textContent = filter.from === null && filter.to === null ? "" : rangeWords();
  for (const place of root.querySelectorAll(".log-zone")) place.textContent = look.times === "local" ? `the browser's zone, ${zoneName("local")}` : "UTC";
  for (const name of ["level", "host", "stream"]) field(name).classList.toggle("set", field(name).value !== "");
  const chosen = countChosen();
  field("filters").textContent = chosen ? `Filters · ${chosen}` : "Filters";
  field("download-found").hidden = !isFiltered();
  field("download-found").href = `${root.dataset.file}?${asQuery()}`;
  root.classList.toggle("hide-times", look.times === "none");
  document.documentElement.classList.toggle("log-wide", look.wide);
}

// How many of the folded fields leave lines out.
const countChosen = () => [
  filter.only && filter.search, filter.level, filter.hosts.length, filter.streams.length, filter.from !== null || filter.to !== null,
].filter(Boolean).length;

function rangeWords() {
  const [from, to] = ["from", "to"].map((name) => writeTime(filter[name], zone()).replace(/^.* /, ""));
  return from && to ? `${from} to ${to}` : from ? `from ${from}` : `to ${to}`;
}

// A value of the address that no option has gets one.
function choose(select, value, words) {
  if (![...select.options].some((option) => option.value === value)) select.add(new Option(words, value));
  select.value = value;
}

onStatus((ranks) => {
  const hosts = [...new Set(ranks.map(({ host }) => host).filter(Boolean))].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  const select = field("host");
  for (const host of hosts) if (![...select.options].some((option) => option.value === host)) select.add(new Option(host, host));
  root.style.setProperty("--log-host", `${Math.max(...hosts.map((host) => host.length), "server".length)}ch`); // so that texts stand in line
});

onChange(fill);

// --- menus ---

// Narrow windows have one button for all fields but the search.
field("filters").addEventListener("click", () => {
  field("filters").setAttribute("aria-expanded", root.classList.toggle("unfolded"));
});

const menus = [...root.querySelectorAll("details.log-menu")];
document.addEventListener("click", (event) => { for (const menu of menus) if (!menu.contains(event.target)) menu.open = false; });
for (const menu of menus) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}
