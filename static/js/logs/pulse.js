// The rank pulse: where each rank's training stands. Up to 16 ranks have a row each, with their lines per second as texture
// since the page was opened; more have the heat map. Whether it is open stands in the address.

import { showMap } from "./rank_map.js";
import { openMenu, whatIsItDoing } from "./rank_menu.js";
import { describe, hueOf, progress, write } from "./rank_look.js";

const SECONDS = 300;
const HEIGHT = 14;
const [TALL_PX, WIDE_PX] = [800, 720];

const pulse = document.getElementById("pulse");
const says = document.getElementById("pulse-says");
const list = document.getElementById("pulse-rows");
const map = document.getElementById("rank-map");
const rows = new Map(); // rank -> { row, path, stands, rates, lines, entry }

let latest = null;

export function showPulse(ranks, isMany) {
  latest = [ranks, isMany];
  if (pulse.hidden && ranks.length) open(isMany);
  pulse.hidden = !ranks.length;
  map.hidden = !isMany;
  list.hidden = isMany;
  if (!isMany) for (const entry of ranks) count(entry);
  write(says, summary(ranks, isMany));
  if (pulse.open) draw();
}

function summary(ranks, isMany) {
  const marked = ranks.filter(({ mark }) => mark).length;
  const look = marked ? `${marked} rank${marked === 1 ? " is holding up its gang" : "s are holding up their gang"}` : "";
  const how = isMany ? "darker: further behind its peers · dashed: no progress known · pale: ended · dot: silent" : "progress, and lines per second over the last 5 minutes on this page";
  return [look, how].filter(Boolean).join(" · ");
}

const isUsuallyOpen = (isMany) => isMany && innerHeight >= TALL_PX && innerWidth > WIDE_PX;

function open(isMany) {
  const asked = new URLSearchParams(location.search).get("pulse");
  pulse.open = asked === null ? isUsuallyOpen(isMany) : asked === "1";
}

pulse.addEventListener("toggle", () => {
  const query = new URLSearchParams(location.search);
  if (latest && pulse.open === isUsuallyOpen(latest[1])) query.delete("pulse");
  else query.set("pulse", pulse.open ? "1" : "0");
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  history.replaceState(history.state, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
  if (pulse.open) draw();
});

function draw() {
  if (!latest) return;
  const [ranks, isMany] = latest;
  if (isMany) showMap(ranks);
  else for (const entry of ranks) drawRow(rows.get(entry.rank));
}

function count(entry) {
  const row = rows.get(entry.rank) ?? makeRow(entry.rank);
  row.rates.push(row.lines === null ? 0 : Math.max(0, entry.lines - row.lines));
  if (row.rates.length > SECONDS) row.rates.shift();
  row.lines = entry.lines;
  row.entry = entry;
}

function makeRow(rank) {
  const row = document.createElement("div");
  row.className = `pulse-row ${hueOf(rank)}`;
  const [name, stands, ask] = ["button", "span", "button"].map((tag) => document.createElement(tag));
  name.textContent = rank;
  name.className = "plain rank";
  name.setAttribute("aria-label", `Rank ${rank}`);
  name.setAttribute("aria-haspopup", "menu");
  stands.className = "stands";
  ask.textContent = "What is it doing?";
  ask.className = "plain";
  const texture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  texture.setAttribute("viewBox", `0 0 ${SECONDS} ${HEIGHT}`);
  texture.setAttribute("preserveAspectRatio", "none");
  texture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  texture.append(path);
  row.append(name, texture, stands, ask);
  const made = { row, path, stands, ask, rates: [], lines: null, entry: null };
  ask.addEventListener("click", () => whatIsItDoing(made.entry));
  name.addEventListener("click", () => openMenu(made.entry, name));
  row.addEventListener("contextmenu", (event) => { event.preventDefault(); openMenu(made.entry, name); });
  const after = [...rows].filter(([other]) => other > rank).sort(([one], [other]) => one - other)[0];
  list.insertBefore(row, after?.[1].row ?? null);
  rows.set(rank, made);
  return made;
}

function drawRow({ row, path, stands, rates, entry }) {
  const most = Math.max(1, ...rates);
  const start = SECONDS - rates.length;
  // a bar's height is the root of its rate, so that a flood leaves the others visible
  path.setAttribute("d", rates.map((rate, at) => (rate ? `M${start + at} ${HEIGHT}v-${(Math.sqrt(rate / most) * HEIGHT).toFixed(1)}` : "")).join(""));
  row.classList.toggle("marked", Boolean(entry.mark));
  write(stands, `${progress(entry) || "no progress known"}${entry.mark ? " · holding up its gang" : ""}`);
  if (row.title !== describe(entry)) row.title = describe(entry);
}
