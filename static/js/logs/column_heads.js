// The heads of the ranks side by side: the rank with its menu, how it stands, and a button that takes its column away.

import { state } from "./live.js";
import { openMenu } from "./rank_menu.js";
import { ago, describe, hueOf, progress, write } from "./rank_look.js";

/** The head of a rank's column; `entryOf(rank)` is what the status says of it, `remove(rank)` takes the column away. */
export function columnHead(rank, entryOf, remove) {
  const cell = document.createElement("span");
  cell.className = `column-head ${hueOf(rank)}`;
  cell.dataset.rank = rank;
  const [name, stands, away] = ["button", "small", "button"].map((tag) => document.createElement(tag));
  name.textContent = rank < 0 ? "none" : rank;
  name.className = "plain";
  name.setAttribute("aria-haspopup", "menu");
  name.addEventListener("click", () => { if (entryOf(rank) && rank >= 0) openMenu(entryOf(rank), name); });
  Object.assign(away, { className: "plain", textContent: "×", title: `Without rank ${rank}` });
  away.setAttribute("aria-label", away.title);
  away.addEventListener("click", () => remove(rank));
  cell.append(name, stands, away);
  if (entryOf(rank)) sayHead(cell, entryOf(rank));
  return cell;
}

/** Say in a head how its rank stands now. */
export function sayHead(cell, entry) {
  cell.classList.toggle("marked", Boolean(entry.mark));
  write(cell.children[1], entry.mark ? ["holds up", ago(entry.stepAge)].filter(Boolean).join(" ") : [entry.host, progress(entry) || (state.ended ? "" : ago(entry.age))].filter(Boolean).join(" · "));
  cell.children[1].classList.toggle("mark", Boolean(entry.mark));
  if (cell.title !== describe(entry)) cell.title = describe(entry);
}
