// What every page has, as one script: pages import these from here, so that there is one of each.

export { showConnection, spell, tell } from "./live.js";
export { isSingleKey, keysAreOn } from "./keys.js";
import "./copy.js";
import "./find.js";
