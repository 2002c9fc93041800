// A whole log by line numbers: the row at index i is line i + 1. Only pages around the position are in memory.

import { Refused, ask } from "./fetch.js";

const PAGE = 500;
const MARGIN = 150; // lines before and behind what is shown that are fetched too
const MOST_PAGES = 40;
const MOST_CHARACTERS = 48 * 1024 * 1024;
const TEXT = 6;
const RETRY_MS = 1_000;

/** An unfiltered log. `onNews()` is called when rows have come, `onRefused(sentence)` when the server refuses. */
export class WholeLog {
  isWhole = true;
  looked = null; // nothing is searched for
  atStart = true;
  atEnd = true;
  pages = new Map(); // index of the page -> {rows, characters}; a row that is no longer kept is null
  busy = false;
  wish = null;
  closed = false;

  constructor({ onNews, onRefused }) { Object.assign(this, { onNews, onRefused, count: 0, upto: 0 }); }

  /** Take an answer of the server: its lines, and that the log has come to `upto`. */
  take({ lines, upto, first, last }) {
    this.grow(upto);
    for (const row of lines) this.put(row);
    // what is missing between lines that were looked at is not kept any more
    for (let number = first; number <= Math.min(last, upto, first + 2 * PAGE); number += 1) {
      const { rows: known } = this.page(this.pageOf(number));
      if (known[(number - 1) % PAGE] === undefined) known[(number - 1) % PAGE] = null;
    }
  }

  page(index) {
    const page = this.pages.get(index) ?? { rows: new Array(PAGE), characters: 0 };
    this.pages.set(index, page);
    return page;
  }

  /** Take lines that the socket sends. They are kept where somebody reads; elsewhere they can be fetched. */
  append(rows, upto, isFollowed) {
    for (const row of rows) if (isFollowed || this.pages.has(this.pageOf(row[0]))) this.put(row);
    this.grow(upto);
    this.trim(this.pageOf(isFollowed ? upto : (this.wish?.[0] ?? 0) + 1));
  }

  grow(upto) { this.upto = Math.max(this.upto, upto); this.count = this.upto; }

  pageOf(number) { return Math.floor((number - 1) / PAGE); }

  put(row) {
    const page = this.page(this.pageOf(row[0]));
    if (!page.rows[(row[0] - 1) % PAGE]) page.characters += row[TEXT].length;
    page.rows[(row[0] - 1) % PAGE] = row;
  }

  /** The row, null when it is no longer kept, undefined while it is not here. */
  at(index) { return this.pages.get(Math.floor(index / PAGE))?.rows[index % PAGE]; }

  numberAt(index) { return index + 1; }

  indexOf(number) { return number - 1; }

  has(number) { return number >= 1 && number <= this.count; }

  /** Rows from index `first` to `last` are shown. Whoever moves on quickly has only his last wish fulfilled. */
  need(first, last) {
    this.wish = [first, last];
    if (!this.busy) this.fetch();
  }

  missing() {
    const [first, last] = this.wish;
    const ends = [Math.max(0, first - MARGIN), Math.min(this.count - 1, last + MARGIN)];
    for (const [from, to] of [[first, Math.min(last, this.count - 1)], ends]) { // what is seen goes first
      for (let index = Math.max(0, from); index <= to; index += 1) if (this.at(index) === undefined) return index;
    }
    return -1;
  }

  async fetch() {
    for (let index = this.missing(); index >= 0 && !this.closed; index = this.missing()) {
      this.busy = true;
      const begin = this.pages.has(Math.floor(index / PAGE)) ? index : index - (index % PAGE);
      try {
        this.take(await ask(new URLSearchParams({ after: begin, limit: PAGE })));
      } catch (error) {
        if (error instanceof Refused) { this.onRefused(error.message); break; }
        await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); }); // the mark beside the filters says it is away
        continue;
      } finally { this.busy = false; }
      this.trim(Math.floor((this.wish[0] + this.wish[1]) / 2 / PAGE));
      if (!this.closed) this.onNews();
    }
  }

  /** Let go of the pages farthest from the one that is read. */
  trim(middle) {
    let characters = 0;
    for (const page of this.pages.values()) characters += page.characters;
    while (this.pages.size > 3 && (this.pages.size > MOST_PAGES || characters > MOST_CHARACTERS)) {
      const farthest = [...this.pages.keys()].reduce((one, other) => (Math.abs(other - middle) > Math.abs(one - middle) ? other : one));
      characters -= this.pages.get(farthest).characters;
      this.pages.delete(farthest);
    }
  }

  isContext() { return false; }

  opensGroup() { return false; }

  close() { this.closed = true; }
}
