// Which ranks are shown: all, none, only this, or this one too. Chips, heat map, menus and keys choose alike.

import { change, filter } from "./state.js";

export const NO_RANK = -1;

export const isChosen = (rank) => (filter.ranks.length ? filter.ranks.includes(rank) : false);

const set = (ranks) => change({ ranks, expression: "" });

export const all = () => set([]);

/** Only this rank; a second time all again. */
export function only(rank) {
  if (!filter.expression && filter.ranks.length === 1 && filter.ranks[0] === rank) all();
  else set([rank]);
}

/** Add it to the chosen ones, or take it away. */
export function toggle(rank) {
  set(filter.ranks.includes(rank) ? filter.ranks.filter((other) => other !== rank) : [...filter.ranks, rank]);
}

/** What a click or a key on a rank means. */
export function choose(rank, event) {
  if (event.ctrlKey || event.shiftKey || event.metaKey) toggle(rank);
  else only(rank);
}
