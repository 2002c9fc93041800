// A login to a shell, over a WebSocket (webui/live/terminal.py): each side says how many bytes of the other's it has taken,
// and neither sends more than WINDOW_BYTES beyond that. So a flood waits on the host, and a long paste in this page.

const WINDOW_BYTES = 128 * 1024;
const PIECE_BYTES = 16 * 1024;
const READER = "terminal-screen-reader";
const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const LOGIN_ENDED = 4401;

const place = document.getElementById("terminal");
const state = document.getElementById("terminal-state");
const again = document.getElementById("terminal-again");
const reader = document.getElementById("terminal-reader");

/** What the console's colors are now: light-dark() is worked out where it is used. */
function theme() {
  const probe = document.body.appendChild(document.createElement("i"));
  const color = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const named = COLORS.flatMap((name) => {
    const bright = `bright${name[0].toUpperCase()}${name.slice(1)}`;
    return [[name, color(`--t-${name}`)], [bright, color(`--t-${name}`)]];
  });
  const made = {
    ...Object.fromEntries(named), background: color("--panel"), foreground: color("--ink"), cursor: color("--ink"),
    cursorAccent: color("--panel"), selectionBackground: color("--found"),
  };
  probe.remove();
  return made;
}

function start(Terminal, FitAddon) {
  const terminal = new Terminal({
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"), fontSize: 13, scrollback: 5000,
    minimumContrastRatio: 4.5, theme: theme(), screenReaderMode: localStorage.getItem(READER) === "on",
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  terminal.textarea.setAttribute("aria-describedby", "terminal-hint");

  let socket = null;
  let typed = []; // pieces that wait until the shell takes more
  let untaken = 0;

  const tell = (said) => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(said)); };

  function type(bytes) {
    if (socket?.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) typed.push(bytes.subarray(at, at + PIECE_BYTES));
    pass();
  }

  function pass() {
    while (typed.length && untaken + typed[0].length <= WINDOW_BYTES) {
      const piece = typed.shift();
      untaken += piece.length;
      socket.send(piece);
    }
  }

  function hear({ data }) {
    if (typeof data !== "string") {
      terminal.write(new Uint8Array(data), () => tell({ taken: data.byteLength }));
      return;
    }
    state.textContent = "Connected";
    untaken -= JSON.parse(data).taken;
    pass();
  }

  function connect() {
    again.hidden = true;
    state.textContent = "Connecting";
    typed = [];
    untaken = 0;
    socket = new WebSocket(`${location.origin.replace("http", "ws")}/ws/tasks/${place.dataset.task}/terminal`);
    socket.binaryType = "arraybuffer";
    const own = socket;
    socket.onopen = () => tell({ columns: terminal.cols, rows: terminal.rows });
    socket.onmessage = (message) => { if (own === socket) hear(message); };
    socket.onclose = ({ code, reason }) => {
      state.textContent = code === LOGIN_ENDED ? "Your login has ended. Log in again, then reconnect." :
        reason || "The connection to the server was lost.";
      again.hidden = false;
      if (place.contains(document.activeElement)) again.focus();
    };
  }

  const letters = new TextEncoder();
  terminal.onData((text) => type(letters.encode(text)));
  terminal.onBinary((text) => type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => tell({ columns: cols, rows }));
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "F6" || !event.shiftKey) return true;
    event.preventDefault();
    if (event.type === "keydown") (again.hidden ? reader : again).focus();
    return false;
  });
  again.addEventListener("click", () => { terminal.reset(); connect(); terminal.focus(); });
  reader.checked = terminal.options.screenReaderMode;
  reader.addEventListener("change", () => {
    terminal.options.screenReaderMode = reader.checked;
    try { localStorage.setItem(READER, reader.checked ? "on" : "off"); } catch { /* a browser that keeps nothing */ }
  });
  document.addEventListener("themechange", () => { terminal.options.theme = theme(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { terminal.options.theme = theme(); });
  new ResizeObserver(() => fit.fit()).observe(place);
  fit.fit();
  connect();
  terminal.focus();
}

Promise.all([import("../xterm/xterm.js"), import("../xterm/addon-fit.js")]).then(
  ([{ Terminal }, { FitAddon }]) => start(Terminal, FitAddon),
  () => { state.textContent = "This server was set up without npm, so it has no terminal: run make setup where npm works."; },
);
