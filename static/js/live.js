// Keeps a page fresh: one socket says which topics have changed, and htmx fetches the parts that show them.
// A part says what it shows with data-topics="experiment:7 hosts". The side bar shows the connection and the data's age.

const parts = () => [...document.querySelectorAll("[data-topics]")];
const STALE_AFTER_MS = 15_000;

let socket = null;
let lastWord = 0;
let attempt = 0;
let isHeard = false; // the server has said something on this connection

// The word is read out when it changes; the age beside it, which changes all the time, is only seen.
export function showConnection(place, word, lamp, ageMs) {
  const age = ageMs === null ? "" : `${spell(ageMs / 1000)} old`;
  const [wordPlace, agePlace] = [place.querySelector(".word"), place.querySelector(".age")];
  if (wordPlace.textContent !== word) wordPlace.textContent = word;
  if (agePlace.textContent !== age) agePlace.textContent = age;
  if (place.dataset.lamp !== lamp) {
    place.dataset.lamp = lamp;
    place.querySelector(".lamp").className = `lamp ${lamp}`;
  }
}

function showAge() {
  const place = document.getElementById("connection");
  const age = Date.now() - lastWord;
  if (!socket || socket.readyState !== WebSocket.OPEN) {
    if (attempt) showConnection(place, "Reconnecting", "waiting", lastWord ? age : null);
  } else if (age > STALE_AFTER_MS) showConnection(place, "Stale", "failed", age);
  else showConnection(place, "Connected", "running", null);
}

// Of these topics, or whatever they show.
function refresh(topics) {
  if (!topics) lookedAt = performance.now();
  for (const part of parts()) {
    const shown = part.dataset.topics.split(" ");
    const told = topics ? topics.filter((topic) => shown.includes(topic)) : [""];
    if (told.length) wake(part, told);
  }
}

// What was announced may be lost on its way: once in a while a page that somebody sees looks by itself.
const LOOK_EVERY_MS = 20_000;
let lookedAt = performance.now();

function lookAgain() {
  if (document.hidden || performance.now() - lookedAt < LOOK_EVERY_MS) return;
  lookedAt = performance.now();
  for (const part of parts()) if (part.hasAttribute("hx-get")) wake(part);
}

// A part is woken at once, then at most once in this time for the same topic, and always once after the last word of it:
// htmx's throttle drops that one. So an edit is shown at once, and does not wait for what the scheduler said of the one
// before. A part with data-every-ms costs more: it is fetched once in that time, for whatever topic.
const WAKE_EVERY_MS = 1_000;
const APART_MS = 50;
const wakes = new WeakMap(); // part -> {last: when it was woken, due: when it will be, told: topic -> when it was woken for it}

function wake(part, told = [""]) {
  const state = wakes.get(part) ?? { last: -Infinity, due: Infinity, timer: 0, told: new Map(), waiting: new Set() };
  wakes.set(part, state);
  const now = performance.now(); // the time of day may be set back, which would silence the part until it has caught up
  const own = Number(part.dataset.everyMs);
  const since = Math.min(...told.map((topic) => state.told.get(topic) ?? -Infinity)); // of the one that is longest ago
  const due = Math.max(now, state.last + (own || APART_MS), since + (own || WAKE_EVERY_MS));
  for (const topic of told) state.waiting.add(topic);
  if (due >= state.due) return;
  clearTimeout(state.timer);
  state.due = due;
  state.timer = setTimeout(() => {
    Object.assign(state, { last: performance.now(), due: Infinity });
    const topics = [...state.waiting];
    for (const each of topics) state.told.set(each, state.last);
    state.waiting.clear();
    htmx.trigger(part, "wake", { topics });
  }, due - now);
}

function connect() {
  const topics = [...new Set(parts().flatMap((part) => part.dataset.topics.split(" ")))];
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/ws/pages?topics=${encodeURIComponent(topics.join(","))}`);
  socket.onopen = () => {
    attempt = 0;
    lastWord = Date.now();
    isHeard = false;
  };
  socket.onmessage = (message) => {
    lastWord = Date.now();
    const data = JSON.parse(message.data);
    // Whatever was said since the page was made, or while the socket was away, was missed: until the server's first word,
    // which says that it listens.
    if (!isHeard) { isHeard = true; refresh(); }
    else if (data.topics) refresh(data.topics);
    else lookAgain();
  };
  socket.onclose = (event) => {
    if (event.code === 4401) {
      location.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
      return;
    }
    attempt += 1;
    setTimeout(connect, Math.min(10_000, 300 * 2 ** attempt) * (0.5 + Math.random() / 2));
  };
}

// --- swapping parts without a jolt ---

const withoutTimes = (html) => html.replace(/(<time[^>]*data-ago[^>]*>)[^<]*/g, "$1").replace(/csrfmiddlewaretoken" value="[^"]*"/g, "");
const shown = new WeakMap(); // part -> what it shows, as it came
const first = new WeakMap(parts().map((part) => [part, withoutTimes(part.innerHTML)])); // as it came with the page
const missed = new Set(); // parts that were fetched while somebody worked with them
let pressed = null; // what the pointer was pressed on: replaced before it is let go, it would not be clicked
let before = null;

function isSame(part, text) {
  if (shown.has(part) || !first.has(part)) return shown.get(part) === text;
  const fresh = document.createElement("template"); // the page and its parts differ in how they are written
  fresh.innerHTML = text;
  return first.get(part) === withoutTimes(fresh.innerHTML);
}

// What a person works with (a question, marked text, a pressed button) is not pulled from under his hands.
// A dialog that stands apart from the parts (class `apart`) keeps nothing of them, and may be one itself.
function isBusy(part) {
  if (document.querySelector("dialog[open]:not(#keys, .apart)") || part.contains(pressed)) return true;
  return !getSelection().isCollapsed && part.contains(getSelection().anchorNode);
}

function catchUp() {
  for (const part of missed) if (!isBusy(part)) { missed.delete(part); wake(part); }
}

document.addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { pressed = null; catchUp(); }, true);
for (const end of ["close", "selectionchange"]) document.addEventListener(end, catchUp, true);

function nameOf(element) {
  if (!element || element === document.body) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  if (element.href) return `a[href="${CSS.escape(element.getAttribute("href"))}"]`;
  const action = element.form?.getAttribute("action");
  return action ? `form[action="${CSS.escape(action)}"] button` : null;
}

// What has the focus: its name, and which of those of that name it is.
function focusIn(part) {
  const name = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  return name && { name, place: [...part.querySelectorAll(name)].indexOf(document.activeElement) };
}

// What was typed or chosen in a field and not sent yet: [id, value].
function typedIn(part) {
  const fields = [...part.querySelectorAll("input[id]:not([type=checkbox], [type=radio], [type=hidden]), textarea[id], select[id]")];
  return fields.filter(isChanged).map((field) => [field.id, field.value]);
}

function isChanged(field) {
  if (!field.options) return field.value !== field.defaultValue;
  return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
}

function typeAgain([id, value]) {
  const field = document.getElementById(id);
  if (field && (!field.options || [...field.options].some((option) => option.value === value))) field.value = value;
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const { target: part, xhr, requestConfig } = event.detail;
  if (new URL(xhr.responseURL).pathname === "/login") { location.reload(); event.detail.shouldSwap = false; return; }
  const text = withoutTimes(xhr.responseText);
  const isKept = isBusy(part);
  if (isKept) missed.add(part);
  if (isKept || isSame(part, text)) { event.detail.shouldSwap = false; return; }
  shown.set(part, text);
  before = {
    focus: focusIn(part),
    caret: part.contains(document.activeElement) ? document.activeElement.selectionStart ?? null : null,
    typed: requestConfig.triggeringEvent?.type === "wake" ? typedIn(part) : [], // what one asked for himself says all
    open: [...part.querySelectorAll("details[open][id]")].map((details) => details.id),
    scrolled: [...part.querySelectorAll("pre, .table")].map((element) => [element.scrollLeft, element.scrollTop]),
  };
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (!before) return;
  const part = event.detail.target;
  for (const id of before.open) document.getElementById(id)?.setAttribute("open", "");
  before.typed.forEach(typeAgain);
  part.querySelectorAll("pre, .table").forEach((element, index) => {
    [element.scrollLeft, element.scrollTop] = before.scrolled[index] ?? [0, 0];
  });
  focusAgain(part, before);
  before = null;
  tell();
});

function focusAgain(part, { focus, caret }) {
  if (!focus) return;
  const named = part.querySelectorAll(focus.name);
  const element = named[focus.place] ?? named[0];
  element?.focus({ preventScroll: true });
  if (caret !== null) element?.setSelectionRange?.(caret, caret);
}

// One sentence at a time, and at most one per 5 s, for those who listen to the page: what `data-told` says now.
const TELL_EVERY_MS = 5_000;
let told = sentence();
let toldAt = 0;
let telling = null;

function sentence() {
  return document.querySelector("[data-told]")?.dataset.told ?? "";
}

export function tell() {
  clearTimeout(telling);
  if (sentence() === told) return;
  const wait = toldAt + TELL_EVERY_MS - Date.now();
  if (wait > 0) { telling = setTimeout(tell, wait); return; }
  [told, toldAt] = [sentence(), Date.now()];
  document.getElementById("told").textContent = told;
}

export function spell(seconds) {
  for (const [size, unit] of [[86_400, "d"], [3_600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

function countTimes() {
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const text = `${spell(Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000))} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}

function theme() {
  const choices = [...document.querySelectorAll("select.theme")]; // in the side bar, and at the foot of a narrow page
  const show = (chosen) => { for (const choice of choices) choice.value = chosen; };
  show(document.documentElement.dataset.theme || "system");
  const choose = ({ target: { value: chosen } }) => {
    show(chosen);
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    document.cookie = `theme=${chosen}; path=/; max-age=31536000; samesite=lax`;
    document.dispatchEvent(new Event("themechange"));
  };
  for (const choice of choices) choice.addEventListener("change", choose);
}

theme();
setInterval(countTimes, 1000);
if (document.getElementById("connection")) {
  connect();
  setInterval(showAge, 500);
}
