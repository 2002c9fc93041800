// Notes that were not saved are not left by accident.

const form = document.getElementById("notes-form");
const field = form.elements.notes;
const atFirst = field.defaultValue;
let sent = false;

form.addEventListener("submit", () => { sent = true; });
addEventListener("beforeunload", (event) => { if (!sent && field.value !== atFirst) event.preventDefault(); });
