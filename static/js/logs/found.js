// The lines that a filter leaves: one stretch of them, read on at both ends, and let go of at the far one.

import { Refused, ask } from "./fetch.js";

const PAGE = 500;
const NEAR = 150; // rows from an end at which more are read
const MOST_ROWS = 20_000;
const MOST_CHARACTERS = 48 * 1024 * 1024;
const TEXT = 6;
const RETRY_MS = 1_000;

/**
 * A filtered log. `query` has the filter; `context`: lines around each match. `onNews(shift)` is called when rows have come,
 * `shift` of them before the others (negative: so many first ones were let go).
 */
export class FoundLines {
  isWhole = false;
  rows = [];
  characters = 0;
  first = 1; // everything from this number …
  upto = 0; // … up to this one was looked at
  atStart = false;
  atEnd = true;
  newest = 0; // the socket has come so far
  matches = new Set();
  busy = false;
  wish = [0, 0];
  closed = false;

  constructor({ query, context, onNews, onRefused }) { Object.assign(this, { query, context, onNews, onRefused }); }

  get count() { return this.rows.length; }

  at(index) { return this.rows[index]; }

  numberAt(index) { return this.rows[Math.max(0, Math.min(index, this.count - 1))]?.[0] ?? this.upto; }

  /** The index of the line, or of the first one behind it. */
  indexOf(number) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle][0] < number) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** How many lines were looked through, while that goes on for want of lines that fit; else null. */
  get looked() { return this.busy && this.count < PAGE ? this.upto - this.first + 1 : null; }

  has(number) { return number >= this.first && number <= this.upto; }

  /** Whether the line stands there for its neighbor's sake. */
  isContext(number) { return this.context > 0 && !this.matches.has(number); }

  /** Whether lines were left out before this row of a search with context. */
  opensGroup(index) { return this.context > 0 && index > 0 && this.rows[index][0] !== this.rows[index - 1][0] + 1; }

  /** Take the first answer, or one at an end. */
  take(answer, isBefore = false) {
    const empty = !this.count && !this.upto;
    for (const number of answer.matches ?? []) this.matches.add(number);
    const lines = this.count ? answer.lines.filter(([number]) => (isBefore ? number < this.rows[0][0] : number > this.rows[this.count - 1][0])) : answer.lines;
    this.rows = isBefore ? lines.concat(this.rows) : this.rows.concat(lines);
    this.measure(lines, 1);
    if (isBefore || empty) { this.first = answer.first; this.atStart = answer.done; }
    if (empty) this.newest = answer.upto; // the socket begins behind it
    if (!isBefore || empty) { this.upto = Math.max(this.upto, answer.last); this.atEnd = answer.end && this.upto >= this.newest; }
    return isBefore ? lines.length : 0;
  }

  measure(rows, sign) { for (const row of rows) this.characters += sign * row[TEXT].length; }

  get isOver() { return this.count > MOST_ROWS || (this.characters > MOST_CHARACTERS && this.count > PAGE); }

  /** Let go of rows at one end, and say how many that were. */
  trim(atFront) {
    if (!this.isOver) return 0;
    const number = this.count - Math.min(Math.floor(MOST_ROWS * 0.8), Math.floor(this.count * 0.8));
    const gone = atFront ? this.rows.splice(0, number) : this.rows.splice(this.count - number, number);
    this.measure(gone, -1);
    for (const [each] of gone) this.matches.delete(each);
    if (atFront) { this.first = this.rows[0][0]; this.atStart = false; } else { this.upto = this.rows[this.count - 1][0]; this.atEnd = false; }
    return number;
  }

  /** Take lines that the socket sends: all up to `upto` was looked at. Whoever reads elsewhere has them later. */
  append(rows, upto, isFollowed) {
    this.newest = Math.max(this.newest, upto);
    if (!this.atEnd) return;
    if (this.context && rows.length) { this.atEnd = false; this.need(...this.wish); return; } // with their surroundings
    if (!isFollowed && this.isOver) { this.atEnd = false; return; }
    for (const row of rows) if (row[0] > this.upto) { this.rows.push(row); this.characters += row[TEXT].length; }
    this.upto = Math.max(this.upto, upto);
    const gone = isFollowed ? this.trim(true) : 0;
    if (gone) this.onNews(-gone);
  }

  need(first, last) {
    this.wish = [first, last];
    if (!this.busy) this.read();
  }

  get wanted() {
    if (!this.atStart && this.wish[0] < NEAR) return "before";
    return !this.atEnd && this.wish[1] > this.count - NEAR ? "after" : "";
  }

  async read() {
    for (let side = this.wanted; side && !this.closed; side = this.wanted) {
      this.busy = true;
      const query = new URLSearchParams(this.query);
      query.set("limit", PAGE);
      query.set(side, side === "before" ? this.first : this.upto);
      try {
        const answer = await ask(query);
        if (this.closed) return;
        const shift = this.take(answer, side === "before");
        this.moved(shift - (side === "after" ? this.trim(true) : 0));
        if (side === "before") this.trim(false);
        this.onNews(this.shift);
      } catch (error) {
        if (error instanceof Refused) { this.onRefused(error.message); return; }
        await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
      } finally { this.busy = false; }
    }
  }

  moved(shift) {
    this.shift = shift;
    this.wish = this.wish.map((index) => Math.max(0, index + shift));
  }

  close() { this.closed = true; }
}
