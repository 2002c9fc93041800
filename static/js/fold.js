// A <details data-fold="NAME"> is open while the address has NAME, also where it is fetched again.

const isWanted = (name) => new URLSearchParams(location.search).has(name);

function settle() {
  for (const fold of document.querySelectorAll("details[data-fold]")) fold.open = isWanted(fold.dataset.fold);
}

function note(fold) {
  const name = fold.dataset?.fold;
  if (!name || fold.open === isWanted(name)) return;
  const query = new URLSearchParams(location.search);
  if (fold.open) query.set(name, "1");
  else query.delete(name);
  history.replaceState(history.state, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
}

for (const fold of document.querySelectorAll("details[data-fold]")) note(fold); // opened before this module came
document.addEventListener("toggle", ({ target }) => note(target), true); // it does not bubble
document.addEventListener("htmx:afterSwap", settle);
addEventListener("popstate", settle);
