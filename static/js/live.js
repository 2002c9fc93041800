// Keeps a page fresh: one socket says which topics have changed, and htmx fetches the parts that show them.
// A part says what it shows with data-topics="experiment:7 hosts". The side bar shows the connection and the data's age.

const parts = () => [...document.querySelectorAll("[data-topics]")];
const STALE_AFTER_MS = 15_000;

let socket = null;
let lastWord = 0;
let attempt = 0;
let opened = false;

function show(word, lamp) {
  const place = document.getElementById("connection");
  if (!place || place.dataset.word === word) return;
  place.dataset.word = word;
  place.querySelector(".word").textContent = word;
  place.querySelector(".lamp").className = `lamp ${lamp}`;
}

function showAge() {
  if (!lastWord) return;
  const age = Date.now() - lastWord;
  if (!socket || socket.readyState !== WebSocket.OPEN) show(`Reconnecting · data ${spell(age / 1000)} old`, "waiting");
  else if (age > STALE_AFTER_MS) show(`Stale · ${spell(age / 1000)} old`, "failed");
  else show("Connected", "running");
}

function refresh(topic) {
  for (const part of parts()) {
    if (!topic || part.dataset.topics.split(" ").includes(topic)) htmx.trigger(part, "wake");
  }
}

function connect() {
  const topics = [...new Set(parts().flatMap((part) => part.dataset.topics.split(" ")))];
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/ws/pages?topics=${encodeURIComponent(topics.join(","))}`);
  socket.onopen = () => {
    attempt = 0;
    lastWord = Date.now();
    if (opened) refresh(); // whatever was said meanwhile was missed
    opened = true;
  };
  socket.onmessage = (message) => {
    lastWord = Date.now();
    const data = JSON.parse(message.data);
    if (data.topic) refresh(data.topic);
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
  const choice = document.getElementById("theme");
  if (!choice) return;
  choice.value = document.documentElement.dataset.theme || "system";
  choice.addEventListener("change", () => {
    const chosen = choice.value;
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    document.cookie = `theme=${chosen}; path=/; max-age=31536000; samesite=lax`;
    document.dispatchEvent(new Event("themechange"));
  });
}

theme();
setInterval(countTimes, 1000);
if (document.getElementById("connection")) {
  connect();
  setInterval(showAge, 500);
}
