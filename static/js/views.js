// The Views menu saves the address as it is now: scripts may have changed it since the page came.

document.addEventListener("submit", ({ target }) => {
  if (target.matches("form[data-here]")) target.elements.back.value = location.pathname + location.search;
}, true);
