// Copying: what was marked with the mouse, without numbers, times, ranks and hosts; or the lines that the address points at.

import { ask } from "./fetch.js";
import { plain } from "./ansi.js";
import { asQuery, place } from "./state.js";

const MOST_LINES = 20_000;
const PER_REQUEST = 1000;
const TEXT = 6;

/** The marked text of the rows in the view, one line each; null when nothing of them is marked. */
function marked(view) {
  const selection = getSelection();
  if (selection.isCollapsed || !selection.rangeCount) return null;
  const range = selection.getRangeAt(0);
  if (!view.contains(range.commonAncestorContainer)) return null;
  const parts = range.cloneContents().querySelectorAll(".text");
  return parts.length ? [...parts].map((part) => part.textContent).join("\n") : null; // else it lies within one text
}

/** What the address points at, in the lines that the filter leaves. */
async function pointedAt() {
  const texts = [];
  for (let after = place.line - 1; after < place.last && texts.length < MOST_LINES;) {
    const query = asQuery();
    query.set("after", after);
    query.set("limit", PER_REQUEST);
    const found = await ask(query);
    texts.push(...found.lines.filter(([number]) => number <= place.last).map((line) => plain(line[TEXT])));
    if (found.end) break;
    after = found.last;
  }
  return texts.join("\n");
}

/** Serve the copy event of the view and the button; `say(text)` tells how it went. */
export function start(view, button, say) {
  document.addEventListener("copy", (event) => {
    const text = marked(view);
    if (text !== null) { event.clipboardData.setData("text/plain", text); event.preventDefault(); }
    else if (place.line !== null && getSelection().isCollapsed && document.activeElement === view) { event.preventDefault(); copyPointed(); }
  });
  button.addEventListener("click", copyPointed);

  async function copyPointed() {
    try {
      await navigator.clipboard.writeText(await pointedAt());
      say(place.line === place.last ? "Line copied." : "Lines copied.");
    } catch { say("The lines could not be copied. Select them with the mouse instead."); }
  }
}
