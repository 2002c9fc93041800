// Keys of the log, with the focus in no field: a page opens without one. Home, End and Escape are those of its lines.
// 0 to 9 and `a` are the ranks'.

import { isSingleKey } from "../frame.js";
import { change, look, point } from "./state.js";

const TIMES = ["utc", "local", "none"];

/** `viewer` has follow(), toStart(), nextMatch(step), toFailure() and focusGo(). */
export function start(view, search, viewer) {
  const keys = {
    f: viewer.follow,
    G: viewer.follow,
    n: () => viewer.nextMatch(1),
    N: () => viewer.nextMatch(-1),
    w: () => change({ wrap: !look.wrap }),
    z: () => change({ wide: !look.wide }),
    t: () => change({ times: TIMES[(TIMES.indexOf(look.times) + 1) % TIMES.length] }),
    l: viewer.focusGo,
    e: viewer.toFailure,
  };

  view.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // a browser would scroll there step by step, past everything between
    if (event.key === "End") { event.preventDefault(); viewer.follow(); return; }
    if (event.key === "Home") { event.preventDefault(); viewer.toStart(); return; }
    if (event.key === "Escape") point();
  });

  document.addEventListener("keydown", (event) => {
    if (!keys[event.key] || !isSingleKey(event)) return;
    event.preventDefault();
    keys[event.key]();
  });

  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); viewer.nextMatch(event.shiftKey ? -1 : 1); }
    else if (event.key === "Escape" && !search.value) view.focus();
  });
}
