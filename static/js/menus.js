// A menu (details.menu) closes by Escape and by a click beside it.
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" ? document.querySelectorAll("details.menu[open]") : [];
  for (const menu of open) { menu.open = false; menu.querySelector("summary").focus(); }
  if (open.length) event.stopImmediatePropagation(); // meant for the menu alone: what is ticked in a list stays so
});
document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false;
});
