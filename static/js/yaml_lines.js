// Where a value stands in a text of YAML, so that one value changes and every comment and line beside it stays. It reads
// mappings in blocks and in braces, and scalars of one line; of anything else (lists, texts of many lines, anchors) it
// tells only where it begins and ends.

const KEY = /^( *)("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#"'{}[\],&*!|>%@`-][^#]*?|-[^\s#][^#]*?)[ \t]*:(?=[ \t\r]|$)/;
const PLAIN = /^(?![\s?:,[\]{}#&*!|>'"%@`]|-(?!\S))(?!.*(?:: | #|:$))[^\n]*\S$/;

/** The mapping that the text is: {kind: "map", braces, entries: [{key, at, value}], indent, close}; null where it is none. */
export function read(text) {
  const first = text.search(/^(?!---|\s*#|\s*$)/m);
  const start = first < 0 ? text.length : first;
  const open = start + text.slice(start).search(/\S|$/);
  if (text[open] === "{") return inBraces(text, open);
  if (first >= 0 && !KEY.test(lineAt(text, start))) return null;
  return block(text, start, -1).node;
}

/** The value at a path of keys below a mapping; undefined where nothing stands, null where it is not to be reached. */
export function find(map, path) {
  let node = map;
  for (const key of path) {
    if (node?.kind === "empty") return undefined;
    if (node?.kind !== "map") return null;
    const entry = node.entries.find((each) => each.key === key);
    if (!entry) return undefined;
    node = entry.value;
  }
  return node;
}

/** The texts of a list of plain values, or of one value; null where it is anything else. */
export function items(text, node) {
  if (node.kind === "scalar") return [node.text];
  if (node.kind === "empty") return [];
  const whole = text.slice(node.start, node.end).trim();
  const inner = whole[0] === "[" ? whole.slice(1, -1).replace(/\s#.*$/gm, "").split(",") : whole.split("\n").map((line) => line.replace(/(^|\s)#.*$/, ""));
  const words = inner.map((part) => (whole[0] === "[" ? part : part.replace(/^\s*-(\s|$)/, "")).trim()).filter(Boolean);
  const isPlain = whole[0] === "[" || inner.every((line) => !line.trim() || /^\s*-(\s|$)/.test(line));
  return isPlain && words.every((word) => !/^[[{&*!|>]|: /.test(word)) ? words.map(unquoted) : null;
}

/** All [path, value, at] below a mapping that are no mappings, and mappings with a `type` whole. */
export function leaves(map, above = []) {
  return map.entries.flatMap(({ key, at, value }) => {
    const path = [...above, key];
    return value.kind === "map" && !find(value, ["type"]) ? leaves(value, path) : [[path, value, at]];
  });
}

/** The text with `value` (what a person types, "" is nothing; or a list) at the path; null where that cannot be done. */
export function put(text, path, value) {
  const root = read(text);
  const node = root && find(root, path);
  const isList = node?.kind === "other" && Array.isArray(value) && items(text, node);
  if (node === null || node?.kind === "map" || (node?.kind === "other" && !isList)) return null;
  if (node) {
    const gap = text[node.start - 1] === ":" && value ? " " : "";
    return text.slice(0, node.start) + gap + written(value, text[node.start], !node.inBraces) + text.slice(node.end);
  }
  let depth = path.length - 1;
  while (find(root, path.slice(0, depth)) === undefined) depth -= 1;
  const within = find(root, path.slice(0, depth));
  const rest = path.slice(depth);
  if (within.kind === "map" && within.braces || within.inBraces) {
    const inner = rest.slice(1).reduceRight((inside, key) => `{${name(key)}: ${inside}}`, written(value, "", false));
    const entry = `${name(rest[0])}: ${inner}`;
    if (within.kind === "empty") return `${text.slice(0, within.start)} {${entry}}${text.slice(within.end)}`;
    const at = within.start + 1;
    return `${text.slice(0, at)}${entry}${within.entries.length ? ", " : ""}${text.slice(at)}`;
  }
  const indent = within.kind === "map" ? within.indent : within.indent + 2;
  const lines = rest.map((key, level) => `${" ".repeat(indent + 2 * level)}${name(key)}:`).join("\n");
  const end = within.kind === "map" ? (within.entries.at(-1)?.value.end ?? text.length) : within.end;
  const at = text.indexOf("\n", end) < 0 ? text.length : text.indexOf("\n", end);
  const before = text.slice(0, at);
  return `${before}${before && !before.endsWith("\n") ? "\n" : ""}${lines} ${written(value, "", true)}${text.slice(at) || "\n"}`;
}

/** The text without the path, and without mappings that have nothing else; null where that cannot be done. */
export function drop(text, path) {
  const root = read(text);
  if (!root || find(root, path) === null) return null;
  if (find(root, path) === undefined) return text;
  let depth = path.length;
  while (depth > 1 && find(root, path.slice(0, depth - 1)).entries.length === 1) depth -= 1;
  const within = find(root, path.slice(0, depth - 1));
  const place = within.entries.findIndex(({ key }) => key === path[depth - 1]);
  const { at, value } = within.entries[place];
  if (!within.braces) {
    const end = text.indexOf("\n", value.end);
    return text.slice(0, at) + (end < 0 ? "" : text.slice(end + 1));
  }
  const next = within.entries[place + 1];
  const from = next ? at : within.entries[place - 1]?.value.end ?? at;
  return text.slice(0, from) + text.slice(next ? next.at : value.end);
}

/** The number of the line that holds a place of the text, from 1. */
export const lineOf = (text, at) => text.slice(0, at).split("\n").length;

function lineAt(text, at) {
  const end = text.indexOf("\n", at);
  return text.slice(at, end < 0 ? text.length : end);
}

function unquoted(word) {
  if (word[0] === "'") return word.slice(1, -1).replaceAll("''", "'");
  if (word[0] !== '"') return word;
  try { return JSON.parse(word); } catch { return word.slice(1, -1); }
}

const name = (key) => (PLAIN.test(key) ? key : JSON.stringify(key));

function written(value, quote, isBlock) {
  if (Array.isArray(value)) return `[${value.map((each) => written(each, "", false)).join(", ")}]`;
  if (quote === '"') return JSON.stringify(value);
  if (quote === "'") return `'${value.replaceAll("'", "''")}'`;
  const text = value.trim();
  return !text || (PLAIN.test(text) && (isBlock || !/[,[\]{}]/.test(text))) ? text : JSON.stringify(text);
}

/** A mapping in a block whose lines are indented deeper than `above`: {node, next}. */
function block(text, from, above) {
  const node = { kind: "map", braces: false, entries: [], indent: 0, start: from, end: from };
  let at = from;
  while (at < text.length) {
    const line = lineAt(text, at);
    const after = at + line.length + 1;
    if (/^\s*(#|\r?$)/.test(line) || /^---(\s|$)/.test(line)) { at = after; continue; }
    if (/^\.\.\.(\s|$)/.test(line)) break;
    const blanks = line.search(/[^ ]/);
    if (node.entries.length ? blanks < node.indent : blanks <= above) break;
    const found = line.match(KEY);
    if (!found || (node.entries.length && blanks > node.indent)) { // more of the value before, of whatever kind it is
      const last = node.entries.at(-1);
      if (!last) break;
      last.value = { kind: "other", start: last.value.start, end: at + line.trimEnd().length };
      node.end = last.value.end;
      at = after;
      continue;
    }
    if (!node.entries.length) node.indent = blanks;
    const { value, next } = valueAt(text, at + found[0].length, blanks);
    node.entries.push({ key: unquoted(found[2]), at, value });
    node.end = value.end;
    at = next;
  }
  return { node, next: at };
}

/** What stands after the colon of a key in a block: {value, next}, where `next` is the begin of a line. */
function valueAt(text, colon, indent) {
  const line = lineAt(text, colon);
  const after = colon + line.length + 1;
  const start = colon + line.match(/^[ \t]*/)[0].length;
  const rest = text.slice(start, colon + line.length);
  if (!rest.trim() || rest[0] === "#") {
    const inner = block(text, after, indent);
    if (inner.node.entries.length) return { value: inner.node, next: inner.next };
    return { value: { kind: "empty", start: colon, end: colon, indent, text: "" }, next: after };
  }
  if (rest[0] === "{" || rest[0] === "[") {
    const value = rest[0] === "{" ? inBraces(text, start) : { kind: "other", start, end: closed(text, start) };
    const end = text.indexOf("\n", value.end);
    return { value, next: end < 0 ? text.length : end + 1 };
  }
  if ("|>".includes(rest[0])) { // a text of many lines, blank ones too
    let end = start + rest.trimEnd().length;
    let next = after;
    for (let each = lineAt(text, next); next < text.length && (!each.trim() || each.search(/\S/) > indent); each = lineAt(text, next)) {
      if (each.trim()) end = next + each.trimEnd().length;
      next += each.length + 1;
    }
    return { value: { kind: "other", start, end }, next };
  }
  const quoted = rest.match(/^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(#.*)?$/);
  const word = quoted ? quoted[1] : rest.replace(/\s+#.*$/, "").trimEnd();
  const odd = !quoted && /^["'&*!%@`]/.test(word);
  return { value: { kind: odd ? "other" : "scalar", start, end: start + word.length, text: unquoted(word) }, next: after };
}

/** The end of the brackets that open at a place. */
function closed(text, open) {
  let depth = 0;
  for (let at = open; at < text.length; at += 1) {
    if ("{[".includes(text[at])) depth += 1;
    else if ("}]".includes(text[at]) && (depth -= 1) === 0) return at + 1;
    else if (/["']/.test(text[at]) && /[\s,:[{]/.test(text[at - 1])) at = Math.max(at, endOfQuoted(text, at) - 1);
    else if (text[at] === "#" && /\s/.test(text[at - 1])) at = Math.max(at, text.indexOf("\n", at));
  }
  return text.length;
}

function endOfQuoted(text, open) {
  const found = text.slice(open).match(text[open] === '"' ? /^"(?:[^"\\]|\\.)*"/ : /^'(?:[^']|'')*'/);
  return found ? open + found[0].length : open + 1;
}

/** A mapping in braces that open at a place, with braces or blocks around it. */
function inBraces(text, open) {
  const end = closed(text, open);
  const node = { kind: "map", braces: true, inBraces: true, entries: [], start: open, close: end - 1, end };
  const skip = (at) => at + text.slice(at, end).match(/^(?:[\s,]|#[^\n]*)*/)[0].length;
  for (let at = skip(open + 1); at < end - 1;) {
    const found = text.slice(at, end).match(/^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,:{}[\]"'][^,:{}[\]]*?)\s*:\s*/);
    if (!found) return { kind: "other", inBraces: true, start: open, end };
    const start = at + found[0].length;
    let value;
    if (text[start] === "{") value = inBraces(text, start);
    else if (text[start] === "[") value = { kind: "other", start, end: closed(text, start) };
    else {
      const quoted = /["']/.test(text[start]);
      const word = quoted ? text.slice(start, endOfQuoted(text, start)) : text.slice(start, end - 1).match(/^[^,{}[\]#\n]*/)[0].trimEnd();
      const colon = at + found[0].indexOf(":", found[1].length) + 1;
      value = !word ? { kind: "empty", start: colon, end: colon, text: "" }
        : { kind: /^[&*!]/.test(word) ? "other" : "scalar", start, end: start + word.length, text: unquoted(word) };
    }
    node.entries.push({ key: unquoted(found[1]), at, value: { ...value, inBraces: true } });
    at = skip(value.end);
  }
  return node;
}
