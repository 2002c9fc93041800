// What a page shows, kept in its address, so that every view is a link.

const TYPING_MS = 3_000;

/**
 * The state of a page whose address says `nothing`: {state, change, address, onChange}. Its values are texts, numbers, null
 * (no number), true or false, or lists of texts; `typed` are those that change many times in one go.
 */
export function stateOf(nothing, typed = []) {
  const state = {};
  const listeners = [];
  let last = { key: "", at: 0 };

  function tell(names) { for (const listener of listeners) listener(names); }

  function fromAddress() {
    const query = new URLSearchParams(location.search);
    const number = (name) => (query.get(name) && Number.isFinite(Number(query.get(name))) ? Number(query.get(name)) : null);
    for (const [name, usual] of Object.entries(nothing)) {
      if (Array.isArray(usual)) state[name] = query.getAll(name);
      else if (typeof usual === "boolean") state[name] = query.has(name);
      else if (typeof usual === "string") state[name] = query.get(name) || usual;
      else state[name] = number(name) ?? usual;
    }
  }

  /** The address of the page as it stands; with `part` that of a part of it. */
  function address(part = "") {
    const query = new URLSearchParams();
    if (part) query.set("part", part);
    for (const [name, value] of Object.entries(state)) {
      if (Array.isArray(value)) for (const each of value) query.append(name, each);
      else if (value !== nothing[name]) query.set(name, value === true ? "1" : value);
    }
    const text = query.toString().replaceAll("%2F", "/");
    return `${location.pathname}${text ? `?${text}` : ""}`;
  }

  /** Change parts of the state. What is typed or dragged in one go is one entry of the browser's history. */
  function change(part) {
    const names = Object.keys(part).filter((name) => String(part[name]) !== String(state[name]));
    if (!names.length) return;
    for (const name of names) state[name] = part[name];
    const key = names.join();
    const goesOn = typed.includes(key) && last.key === key && Date.now() - last.at < TYPING_MS;
    last = { key, at: Date.now() };
    history[goesOn ? "replaceState" : "pushState"](null, "", address());
    tell(new Set(names));
  }

  /** Call `listener(names)` with the set of the names that have changed. */
  function onChange(listener) { listeners.push(listener); }

  addEventListener("popstate", () => {
    const before = { ...state };
    fromAddress();
    tell(new Set(Object.keys(state).filter((name) => String(state[name]) !== String(before[name]))));
  });

  fromAddress();
  return { state, change, address, onChange };
}

/** The list without the name, or with it at the end. */
export const toggled = (list, name) => (list.includes(name) ? list.filter((each) => each !== name) : [...list, name]);
