// The ranks of a log: a chip each, with how long ago it wrote. A click shows only that rank, with Ctrl or Shift it is added.

import { keysAreOn } from "./keys.js";
import { spell } from "./live.js";
import { onStatus, state } from "./log_live.js";
import { change, filter, onChange } from "./log_state.js";

const STALLED_AFTER_S = 10;

const chips = document.querySelector("#log .ranks");

// A rank that says nothing while others go on is marked: it may hang.
const isStalled = (age, ranks) => !state.ended && age >= STALLED_AFTER_S && ranks.some((other) => other.rank >= 0 && other.age < STALLED_AFTER_S / 3);

function showRanks(ranks) {
  for (const { rank, age, host } of ranks) {
    let chip = chips.querySelector(`[data-rank="${rank}"]`);
    if (!chip) {
      chip = document.createElement("button");
      chip.className = "pill";
      chip.dataset.rank = rank;
      chip.append(document.createElement("b"), document.createElement("small"));
      chip.firstChild.textContent = rank < 0 ? "no rank" : rank;
      const after = [...chips.children].find((other) => Number(other.dataset.rank) > rank);
      chips.insertBefore(chip, after || null);
    }
    const stalled = rank >= 0 && isStalled(age, ranks);
    chip.classList.toggle("stalled", stalled);
    chip.title = rank < 0 ? "Lines outside any rank: only these" : `Only rank ${rank} on ${host}; with Ctrl or Shift it is added`;
    chip.lastChild.textContent = state.ended ? "" : `${stalled ? "silent " : ""}${age < 10 ? `${age.toFixed(1)} s` : spell(age)}`;
  }
  markChips();
}

function markChips() {
  for (const chip of chips.children) {
    const on = chip.dataset.rank === "all" ? !filter.ranks.length : filter.ranks.includes(Number(chip.dataset.rank));
    chip.setAttribute("aria-pressed", on);
  }
}

function choose(rank, also) {
  if (rank === "all") change({ ranks: [] });
  else if (!also) change({ ranks: filter.ranks.length === 1 && filter.ranks[0] === rank ? [] : [rank] });
  else if (filter.ranks.includes(rank)) change({ ranks: filter.ranks.filter((other) => other !== rank) });
  else change({ ranks: [...filter.ranks, rank] });
}

chips.addEventListener("click", (event) => {
  const chip = event.target.closest("[data-rank]");
  if (chip) choose(chip.dataset.rank === "all" ? "all" : Number(chip.dataset.rank), event.ctrlKey || event.shiftKey || event.metaKey);
});

document.getElementById("log-view").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keysAreOn()) return;
  if (event.key === "a") choose("all");
  else if (/^\d$/.test(event.key)) choose(Number(event.key), false);
});

onStatus(showRanks);
onChange(markChips);
markChips();
