// Scripts that every page loads. Import shared modules from this file so that each is loaded once.

export { showConnection, spell, tell } from "./live.js";
export { isSingleKey, keysAreOn } from "./keys.js";
import "./copy.js";
import "./find.js";
import "./menus.js";
