// What the Metrics page of a trial shows, kept in its address, so that every view is a link.
//
// Others read `state` and never write it: `change({log: true})` does, keeps the address true and tells who asked with `onChange`.

const NOTHING = { q: "", prefix: "", m: [], pin: [], x: "step", log: false, smooth: 0, from: null, to: null, expand: "", page: 1 };
const LISTS = ["m", "pin"];
const TYPING_MS = 3_000;

/**
 * q, prefix, page: of the table. m: names of charts that are ticked, pin: of those that stand first. from, to: ends of the
 * window on the axis x or null; steps, epochs, seconds since the start, or epoch seconds. expand: the chart that is large.
 */
export const state = { ...NOTHING };
const listeners = [];
let last = { key: "", at: 0 };

/** Call `listener(names)` with the set of the names that have changed. */
export function onChange(listener) { listeners.push(listener); }

/** Change parts of the state. What is typed or dragged in one go is one entry of the browser's history. */
export function change(part) {
  const names = Object.keys(part).filter((name) => String(part[name]) !== String(state[name]));
  if (!names.length) return;
  for (const name of names) state[name] = part[name];
  const key = names.join();
  const goesOn = ["q", "smooth"].includes(key) && last.key === key && Date.now() - last.at < TYPING_MS;
  last = { key, at: Date.now() };
  history[goesOn ? "replaceState" : "pushState"](null, "", address());
  tell(new Set(names));
}

/** The address of the page as it stands; with `part` that of a part of it. */
export function address(part = "") {
  const query = new URLSearchParams();
  if (part) query.set("part", part);
  for (const [name, value] of Object.entries(state)) {
    if (LISTS.includes(name)) for (const each of value) query.append(name, each);
    else if (value !== NOTHING[name]) query.set(name, value === true ? "1" : value);
  }
  const text = query.toString().replaceAll("%2F", "/");
  return `${location.pathname}${text ? `?${text}` : ""}`;
}

function tell(names) { for (const listener of listeners) listener(names); }

function fromAddress() {
  const query = new URLSearchParams(location.search);
  const number = (name) => (query.get(name) && Number.isFinite(Number(query.get(name))) ? Number(query.get(name)) : null);
  Object.assign(state, {
    q: query.get("q") ?? "",
    prefix: query.get("prefix") ?? "",
    m: query.getAll("m"),
    pin: query.getAll("pin"),
    x: query.get("x") || "step",
    log: query.has("log"),
    smooth: number("smooth") ?? 0,
    from: number("from"),
    to: number("to"),
    expand: query.get("expand") ?? "",
    page: number("page") ?? 1,
  });
}

addEventListener("popstate", () => {
  const before = { ...state };
  fromAddress();
  tell(new Set(Object.keys(state).filter((name) => String(state[name]) !== String(before[name]))));
});

fromAddress();
