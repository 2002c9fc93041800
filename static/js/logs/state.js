// What the viewer of a log shows: one filter and one look, kept in the page's address, so that every view is a link.
//
// `filter` says which lines, `look` how. Others read them, never write them: `change({ranks: [2]})` does, keeps the address
// true and tells everybody who asked with `onChange`. Parameters of others in the address stay as they are.

const LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const NO_FILTER = { ranks: [], expression: "", hosts: [], streams: [], level: "", from: null, to: null, search: "", regex: false, only: false, context: 0 };
const PLAIN_LOOK = { times: "utc", wrap: false, wide: false };
const TYPING_MS = 3_000;
const NOBODY = 2 ** 31 - 1; // logs.rank_expression

/**
 * ranks: whole numbers, -1 for lines outside any rank; empty: all. expression: the text that chose the ranks, empty where
 * they were chosen one by one (logs/rank_box.js keeps the two together). from, to: epoch seconds or null. context: lines.
 */
export const filter = { ...NO_FILTER };
/** times: "utc", "local" or "none"; wrap, wide: booleans. */
export const look = { ...PLAIN_LOOK };
/** Where the address points: `line` and `last` of #L10-L20 (null without), `at` in epoch seconds (null without). */
export const place = { line: null, last: null, at: null };

const listeners = [];
let lastPushed = { names: "", at: 0 };

/** Call `listener(names)` after a change: a set of the names that changed; `moved` is among them when the place did. */
export function onChange(listener) { listeners.push(listener); }

/** Change parts of the filter or the look. One entry in the browser's history, also while somebody types. */
export function change(part) {
  const names = new Set(Object.keys(part).filter((name) => !same(part[name], name in filter ? filter[name] : look[name])));
  if (!names.size) return;
  for (const name of names) (name in filter ? filter : look)[name] = part[name];
  const key = [...names].join();
  const isTyping = key === "search" && lastPushed.names === key && Date.now() - lastPushed.at < TYPING_MS;
  toAddress(isTyping);
  lastPushed = { names: key, at: Date.now() };
  tell(names);
}

/** Point at a line, a range of lines, a time or (nothing given) at none of them. */
export function point({ line = null, last = null, at = null } = {}) {
  if (place.line === line && place.last === last && place.at === at) return;
  Object.assign(place, { line, last, at });
  toAddress(false);
  lastPushed = { names: "", at: 0 };
  tell(new Set(["pointed"]));
}

/** Keep in the current entry of the history which line is on top, so that going back comes back to it. */
export function remember(line) { history.replaceState({ ...history.state, line }, ""); }

/** The level and those above it; empty for all. */
export const levels = () => (filter.level ? LEVELS.slice(LEVELS.indexOf(filter.level)) : []);

/** Whether lines are left out: not so while a search only marks what it finds. */
export const isFiltered = () => Boolean(
  filter.ranks.length || filter.hosts.length || filter.streams.length || filter.level || filter.from !== null
  || filter.to !== null || (filter.search && filter.only),
);

/** The filter as parameters of the server's addresses; `search`: whether what is searched for is a part of it. */
export function asQuery({ search = filter.only } = {}) {
  const query = new URLSearchParams();
  if (filter.ranks.length) query.set("rank", spellRanks(filter.ranks));
  for (const host of filter.hosts) query.append("host", host);
  for (const stream of filter.streams) query.append("stream", stream);
  for (const level of levels()) query.append("level", level);
  if (filter.from !== null) query.set("from", filter.from);
  if (filter.to !== null) query.set("to", filter.to);
  if (search && filter.search) {
    query.set("search", filter.search);
    if (filter.regex) query.set("regex", "1");
  }
  return query;
}

/** [0, 1, 2, 5] as "0-2,5". */
export function spellRanks(ranks) {
  const runs = [];
  for (const rank of [...new Set(ranks)].sort((one, other) => one - other)) {
    const run = runs[runs.length - 1];
    if (run && rank >= 0 && run[0] >= 0 && rank === run[1] + 1) run[1] = rank;
    else runs.push([rank, rank]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** "0-2,5" as [0, 1, 2, 5]; what is no rank is left out. */
export function parseRanks(text) {
  const ranks = new Set();
  for (const part of text.split(",")) {
    const [, first, last] = /^(-1|\d{1,6})(?:-(\d{1,6}))?$/.exec(part.trim()) ?? [];
    if (first === undefined) continue;
    for (let rank = Number(first); rank <= Number(last ?? first) && ranks.size < 10_000; rank += 1) ranks.add(rank);
  }
  return [...ranks];
}

function same(one, other) {
  return Array.isArray(one) ? one.length === other.length && one.every((value, index) => value === other[index]) : one === other;
}

function tell(names) { for (const listener of listeners) listener(names); }

// --- the address ---

function fromAddress() {
  const query = new URLSearchParams(location.search);
  const expression = query.get("ranks") ?? "";
  const answered = expression === filter.expression ? filter.ranks : [NOBODY]; // no line until the server has answered
  Object.assign(filter, {
    ranks: expression ? answered : parseRanks(query.getAll("rank").join(",")),
    expression,
    hosts: query.getAll("host"),
    streams: query.getAll("stream"),
    level: LEVELS.includes(query.get("level")) ? query.get("level") : "",
    from: seconds(query.get("from")),
    to: seconds(query.get("to")),
    search: query.get("q") ?? "",
    regex: query.has("regex"),
    only: query.has("only"),
    context: Number(/^\d{1,2}$/.exec(query.get("context") ?? "")?.[0] ?? 0),
  });
  Object.assign(look, {
    times: ["local", "none"].includes(query.get("times")) ? query.get("times") : "utc",
    wrap: query.has("wrap"),
    wide: query.has("wide"),
  });
  const [, line, last] = /^#L(\d{1,15})(?:-L?(\d{1,15}))?$/.exec(location.hash) ?? [];
  const ends = [line, last ?? line].map(Number).sort((one, other) => one - other);
  Object.assign(place, line ? { line: ends[0], last: ends[1], at: null } : { line: null, last: null, at: seconds(query.get("at")) });
}

/** "2026-11-21T10:00:00Z" as epoch seconds; null for what is no time. Without a zone it is UTC. */
export function seconds(text) {
  if (!text) return null;
  const time = Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(text) || !text.includes("T") ? text : `${text}Z`) / 1000;
  return Number.isFinite(time) ? time : null;
}

/** Epoch seconds as the address has them: UTC, milliseconds only where there are some. */
export const spellTime = (time) => new Date(time * 1000).toISOString().replace(".000Z", "Z");

/** The address of the page as it stands, or as it would with other parts of the place. */
export function address({ line, last, at } = place) {
  const query = new URLSearchParams(location.search);
  const set = (name, value) => { query.delete(name); for (const each of [value].flat()) if (each) query.append(name, each); };
  set("rank", filter.ranks.length && !filter.expression ? spellRanks(filter.ranks) : "");
  set("ranks", filter.expression);
  set("host", filter.hosts);
  set("stream", filter.streams);
  set("level", filter.level);
  set("from", filter.from === null ? "" : spellTime(filter.from));
  set("to", filter.to === null ? "" : spellTime(filter.to));
  set("q", filter.search);
  for (const name of ["regex", "only"]) set(name, filter[name] && filter.search ? "1" : "");
  set("context", filter.context ? String(filter.context) : "");
  set("times", look.times === "utc" ? "" : look.times);
  for (const name of ["wrap", "wide"]) set(name, look[name] ? "1" : "");
  set("at", at === null || at === undefined ? "" : spellTime(at));
  const hash = line ? `#L${line}${last && last !== line ? `-L${last}` : ""}` : "";
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return `${location.pathname}${text ? `?${text}` : ""}${hash}`;
}

function toAddress(replaces) {
  const next = address();
  if (next === location.pathname + location.search + location.hash) return;
  history[replaces ? "replaceState" : "pushState"](null, "", next);
}

// Back, forward, and a #L123 that is typed into the address: both come as popstate.
addEventListener("popstate", () => {
  const before = { ...filter, ...look };
  fromAddress();
  const names = new Set(Object.entries({ ...filter, ...look }).filter(([name, value]) => !same(value, before[name])).map(([name]) => name));
  tell(new Set([...names, "moved"]));
});

fromAddress();
