// A row of the ranks side by side: its time, and a cell for each rank.

import { pieces } from "./ansi.js";
import { PAUSE_S } from "./columns_grid.js";
import { clock } from "./times.js";
import { spell } from "../frame.js";

const SHOWN_CHARACTERS = 400;

/** A row of the grid; `cursor` is the number of the line that a person looks at. */
export function rowElement({ time, cells, pause }, cursor) {
  const row = document.createElement("div");
  row.className = pause > PAUSE_S ? "column-row after-pause" : "column-row";
  const at = document.createElement("span");
  at.className = "at";
  at.textContent = clock(time, "utc");
  if (pause > PAUSE_S) at.title = `${spell(pause)} after the row before`;
  row.append(at, ...cells.map((line) => cellElement(line, cursor)));
  return row;
}

function cellElement(line, cursor) {
  const cell = document.createElement("span");
  cell.className = "column-cell";
  if (!line) return cell;
  const [number, , rank, stream, level, , text] = line;
  cell.dataset.number = number;
  cell.dataset.rank = rank ?? -1;
  if (level) cell.classList.add(level.toLowerCase());
  if (stream === "s") cell.classList.add("server");
  if (number === cursor) cell.classList.add("pointed");
  for (const { text: part, classes } of pieces(text.slice(0, SHOWN_CHARACTERS))) {
    if (!classes) { cell.append(part); continue; }
    const dressed = document.createElement("span");
    dressed.className = classes;
    dressed.textContent = part;
    cell.append(dressed);
  }
  return cell;
}
