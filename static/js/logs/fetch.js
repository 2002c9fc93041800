// Reads the log's history over HTTP.

import { toLogin } from "./live.js";

const at = document.getElementById("log").dataset.lines;

/** The server refuses what was asked; the message is its sentence. */
export class Refused extends Error {}

/**
 * The answer to a query at `lines` or, with `path`, below it. Throws Refused, and any other error when the server is away
 * or `signal` ends the request.
 */
export async function ask(query, { path = "", signal } = {}) {
  const answer = await fetch(`${at}${path}?${query}`, { headers: { Accept: "application/json" }, signal });
  if (answer.redirected) { toLogin(); return new Promise(() => {}); }
  if (answer.status === 400) throw new Refused((await answer.json()).message);
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}
