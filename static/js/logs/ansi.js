// Terminal escapes in a line as pieces of text with classes; what would steer a terminal is left out or shown harmlessly.

const ESC = "\u001b";
// CSI sequences, OSC and the other string sequences with their end, and two-character escapes. A string sequence without
// an end, such as that of a program that was killed, hides no text: only its first two characters go.
const SEQUENCE = /\u001b(?:\[([0-9:;<=>?]*)[ -/]*([@-~])|[\]PX^_][^\u0007\u001b\n]*(?:\u0007|\u001b\\)|[ -/]*[0-~]|$)/g;
// Controls but the tab, C1 controls, and what turns the direction of text around.
const ODD = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/;
const ODD_ALL = new RegExp(ODD.source, "g");
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const CUBE = [0, 95, 135, 175, 215, 255];

/** The text as one sees it. */
export const plain = (text) => (ODD.test(text) ? text.replace(SEQUENCE, "").replace(ODD_ALL, picture) : text);

/** [{text, classes, ink, paper}…]: `ink` and `paper` are colors beyond the sixteen that the theme names, or null. */
export function pieces(text) {
  if (!ODD.test(text)) return [{ text, classes: "", ink: null, paper: null }];
  const found = [];
  let style = {};
  let from = 0;
  const put = (part) => { if (part) found.push({ text: part.replace(ODD_ALL, picture), ...dress(style) }); };
  if (text.includes(ESC)) {
    for (const match of text.matchAll(SEQUENCE)) {
      put(text.slice(from, match.index));
      from = match.index + match[0].length;
      if (match[2] === "m" && !/[<=>?]/.test(match[1])) style = apply(style, match[1]);
    }
  }
  put(text.slice(from));
  return found;
}

// Controls as people write them, ^G for the bell; the others have no letter.
function picture(character) {
  const code = character.charCodeAt(0);
  return code < 0x20 || code === 0x7f ? `^${String.fromCharCode(code ^ 0x40)}` : "\ufffd";
}

function apply(before, text) {
  const style = { ...before };
  // a color is written 38;5;n or 38:5:n, 38;2;r;g;b or 38:2::r:g:b
  const codes = text.split(";").flatMap((part) => (part.includes(":") ? [part.split(":").map(Number)] : [Number(part)]));
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index];
    if (Array.isArray(code)) {
      if (code[0] === 38 || code[0] === 48) style[code[0] === 38 ? "ink" : "paper"] = code[1] === 5 ? indexed(code[2]) : mixed(code.slice(-3));
      else if (code[0] === 4) style.underline = code[1] > 0;
    } else if (code === 38 || code === 48) {
      const side = code === 38 ? "ink" : "paper";
      if (codes[index + 1] === 5) { style[side] = indexed(codes[index + 2]); index += 2; }
      else if (codes[index + 1] === 2) { style[side] = mixed(codes.slice(index + 2, index + 5)); index += 4; }
    } else simple(style, code);
  }
  return style;
}

function simple(style, code) {
  if (code === 0) for (const name of Object.keys(style)) delete style[name];
  else if (code === 1) style.bold = true;
  else if (code === 2) style.dim = true;
  else if (code === 3) style.italic = true;
  else if (code === 4 || code === 21) style.underline = true;
  else if (code === 7) style.reverse = true;
  else if (code === 9) style.struck = true;
  else if (code === 22) style.bold = style.dim = false;
  else if (code === 23) style.italic = false;
  else if (code === 24) style.underline = false;
  else if (code === 27) style.reverse = false;
  else if (code === 29) style.struck = false;
  else if (code >= 30 && code <= 37) style.ink = NAMES[code - 30];
  else if (code >= 40 && code <= 47) style.paper = NAMES[code - 40];
  else if (code >= 90 && code <= 97) style.ink = NAMES[code - 90];
  else if (code >= 100 && code <= 107) style.paper = NAMES[code - 100];
  else if (code === 39) style.ink = null;
  else if (code === 49) style.paper = null;
}

/** A color of the 256: one of the theme's, of the cube or of the grays. */
function indexed(number) {
  if (!(number >= 0 && number <= 255)) return null;
  if (number < 16) return NAMES[number % 8];
  if (number >= 232) return mixed(new Array(3).fill(8 + 10 * (number - 232)));
  return mixed([CUBE[Math.floor((number - 16) / 36)], CUBE[Math.floor((number - 16) / 6) % 6], CUBE[(number - 16) % 6]]);
}

const mixed = (parts) => (parts.length === 3 && parts.every((part) => part >= 0 && part <= 255) ? `rgb(${parts.join(" ")})` : null);

function dress(style) {
  const classes = ["bold", "dim", "italic", "underline", "struck", "reverse"].filter((name) => style[name]).map((name) => `t-${name}`);
  const free = { ink: null, paper: null };
  for (const side of ["ink", "paper"]) {
    if (!style[side]) continue;
    const isNamed = NAMES.includes(style[side]);
    classes.push(isNamed ? `${side}-${style[side]}` : `${side}-own`);
    if (!isNamed) free[side] = style[side];
  }
  return { classes: classes.join(" "), ...free };
}
