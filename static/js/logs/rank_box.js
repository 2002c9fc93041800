// The rank box: an expression chooses ranks. The server reads it and answers with them; it is asked again when the marks or
// hosts of the ranks change, since "silent" means others then.

import { toLogin } from "./live.js";
import { change, filter, onChange, spellRanks } from "./state.js";
import { number, write } from "./rank_look.js";

const TYPED_MS = 350;
const AGAIN_MS = 10_000;
const RETRY_MS = 2_000;
const SILENT_S = 10;

const at = document.querySelector("#log .ranks").dataset.at;
const form = document.getElementById("rank-box");
const text = document.getElementById("rank-text");
const says = document.getElementById("rank-says");

let asked = null; // the text of the newest question
let changes = false; // whether its answer may change
let facts = "";
let answeredAt = 0;
let timer = null;

/** Show the box where there are many ranks or an expression chose them. */
export function showBox(isMany, ranks) {
  form.hidden = !isMany && !filter.expression;
  const now = ranks.map(({ rank, host, mark, age }) => `${rank}${host}${mark ? "!" : ""}${age >= SILENT_S ? "?" : ""}`).join();
  const isNews = now !== facts || Date.now() - answeredAt > AGAIN_MS;
  facts = now;
  if (filter.expression && changes && isNews) ask(filter.expression);
  if (!asked && isMany) write(says, `${number(ranks.length)} ranks`);
}

/** Choose by an expression, as if it had been typed. */
export function express(expression) {
  text.value = expression;
  form.hidden = !expression && form.hidden;
  ask(expression);
}

async function ask(expression) {
  asked = expression;
  let data;
  try {
    const answer = await fetch(`${at}/ranks?${new URLSearchParams({ ranks: expression })}`, { headers: { Accept: "application/json" } });
    if (answer.redirected) { toLogin(); return; }
    data = answer.ok ? await answer.json() : { fault: "The server did not answer. Try again." };
  } catch { // the server is away
    setTimeout(() => { if (asked === expression) ask(expression); }, RETRY_MS);
    return;
  }
  if (asked !== expression) return; // somebody has typed on
  answeredAt = Date.now();
  const fault = data.fault ?? "";
  text.setAttribute("aria-invalid", Boolean(fault));
  says.classList.toggle("failed-text", Boolean(fault));
  write(says, fault || (expression ? `${number(data.count)} of ${number(data.of)} ranks` : `${number(data.of)} ranks`));
  if (fault) return; // what was chosen before stays
  changes = data.changes;
  if (expression) change({ expression, ranks: data.ranks });
  else change({ expression, ranks: [] });
}

function read() {
  clearTimeout(timer);
  const typed = text.value.trim();
  if (typed !== (asked ?? "")) ask(typed);
}

form.addEventListener("submit", (event) => { event.preventDefault(); read(); });
text.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(read, TYPED_MS); });

// Chosen elsewhere (a chip, the heat map, the address): the box says so.
function reflect() {
  if (filter.expression) {
    if (filter.expression !== asked) express(filter.expression);
    return;
  }
  asked = filter.ranks.length ? spellRanks(filter.ranks.filter((rank) => rank >= 0)) : "";
  if (filter.ranks.includes(-1)) asked = [asked, "none"].filter(Boolean).join();
  if (document.activeElement !== text) text.value = asked;
  write(says, filter.ranks.length ? `${number(filter.ranks.filter((rank) => rank >= 0).length)} ranks` : "");
  says.classList.remove("failed-text");
  text.setAttribute("aria-invalid", "false");
}

onChange((names) => { if (names.has("ranks") || names.has("expression")) reflect(); });
reflect();
