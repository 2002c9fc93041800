// Where a run that failed told of it first: the head of the page says so (fragments/log_failure.html), also when that
// happens while one looks on.

const told = () => document.getElementById("log-failure");
const whole = (text) => (text ? Number(text) : null);

/** {line, rank, exit}: its first line that tells why, the rank that failed first, how it ended; null where unknown. */
export function failure() {
  const found = told();
  return { line: whole(found?.dataset.line), rank: whole(found?.dataset.rank), exit: found?.dataset.exit.trim() || null };
}

/** Call `listener()` now, and whenever the head of the page has changed. */
export function onFailure(listener) {
  document.addEventListener("htmx:afterSwap", listener);
  listener();
}
