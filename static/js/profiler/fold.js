// The hardware charts fold: slow ranks and steps come first. They are open in a wide window, and where nothing is timed;
// what the user chooses instead is in the address.

import { change, onChange, state } from "./state.js";

const samples = document.getElementById("samples");
const steps = document.getElementById("steps");
const fold = document.getElementById("system-fold");
let usual = false; // until the server has said whether there are timings

const wanted = () => (state.system ? state.system === "open" : usual);

/** Called with whether there are timings: where there are none, the hardware is first. */
export function settle(areTimed) {
  usual = !areTimed || matchMedia("(min-width: 721px)").matches;
  if (areTimed !== (samples.previousElementSibling === steps)) (areTimed ? samples.before(steps) : samples.after(steps));
  fold.open = wanted();
}

fold.addEventListener("toggle", () => { if (fold.open !== wanted()) change({ system: fold.open ? "open" : "closed" }); });
document.querySelector("#charts > nav").addEventListener("click", ({ target }) => {
  if (!fold.open && samples.querySelector(`[data-section="${target.dataset.jump}"]`)) change({ system: "open" });
});
onChange((names) => { if (names.has("system")) fold.open = wanted(); });
fold.open = wanted();
