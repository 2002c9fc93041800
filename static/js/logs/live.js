// The log's socket: lines that come after a number, and each second how the ranks stand. It connects again by itself.

import { showConnection } from "../frame.js";

const STALE_AFTER_MS = 10_000;

const root = document.getElementById("log");
const mark = document.getElementById("log-state");
const listeners = { frame: [], status: [], open: [] };

/** What the last status frame said: `newest` number, `ended`, and `ranks` as in `onStatus`. */
export const state = { newest: 0, ended: false, ranks: [] };

let socket = null;
let attempt = 0;
let lastWord = 0;
let ranksAt = 0;

/** `listener(frame)` for each frame of lines or with an error. */
export function onFrame(listener) { listeners.frame.push(listener); }

/**
 * `listener(ranks, frame)` each second, at once when something is known already. ranks: [{rank, age, host, lines}…], in the
 * order of the ranks, -1 for lines outside any rank; ages in seconds.
 */
export function onStatus(listener) {
  listeners.status.push(listener);
  if (state.ranks.length) listener(state.ranks, {});
}

/** `listener()` whenever the socket opens: what is wanted has to be said again. */
export function onOpen(listener) { listeners.open.push(listener); }

/** Whether the server can be told something now. */
export const isOpen = () => socket?.readyState === WebSocket.OPEN;

/** Say what is wanted, or what has arrived. */
export function say(frame) { if (isOpen()) socket.send(JSON.stringify(frame)); }

/** The login has ended: to the door, and back here afterwards. */
export function toLogin() {
  location.href = `/login?next=${encodeURIComponent(location.pathname + location.search + location.hash)}`;
}

function take(frame) {
  if (frame.newest !== undefined) state.newest = frame.newest;
  if (frame.last !== undefined) state.ended = frame.last;
  if (frame.lines || frame.error) for (const listener of listeners.frame) listener(frame);
  if (frame.ranks) {
    state.ranks = frame.whole === false ? merged(frame.ranks) : frame.ranks;
    ranksAt = Date.now();
    for (const listener of listeners.status) listener(state.ranks, frame);
  }
}

// Of many ranks a frame names those that changed; the others have grown older by the time between.
function merged(changed) {
  const passed = (Date.now() - ranksAt) / 1000;
  const older = (age) => (typeof age === "number" ? age + passed : age);
  const ranks = new Map(state.ranks.map((entry) => [entry.rank, { ...entry, age: older(entry.age), stepAge: older(entry.stepAge) }]));
  for (const entry of changed) ranks.set(entry.rank, entry);
  return [...ranks.values()].sort((one, other) => one.rank - other.rank);
}

export function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/ws/tasks/${root.dataset.task}/logs`);
  socket.onopen = () => {
    attempt = 0;
    lastWord = Date.now();
    for (const listener of listeners.open) listener();
  };
  socket.onmessage = (message) => { lastWord = Date.now(); take(JSON.parse(message.data)); };
  socket.onclose = (event) => {
    if (event.code === 4401) { toLogin(); return; }
    attempt += 1;
    setTimeout(connect, Math.min(10_000, 300 * 2 ** attempt) * (0.5 + Math.random() / 2));
  };
}

function showState() {
  const age = Date.now() - lastWord;
  const resting = document.querySelector("[data-resting]"); // the head says that nothing runs which could write
  if (!isOpen()) showConnection(mark, lastWord ? "Reconnecting" : "Connecting", "waiting", lastWord ? age : null);
  else if (state.ended) showConnection(mark, "Complete", "rest", null);
  else if (resting) showConnection(mark, resting.dataset.resting, "waiting", null);
  else if (age > STALE_AFTER_MS) showConnection(mark, "Stale", "failed", age);
  else showConnection(mark, "Live", "running", null);
}

setInterval(showState, 500);
