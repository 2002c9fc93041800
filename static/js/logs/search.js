// Search: which lines fit is asked of the server, backwards from the end, and counted as they are found; next and previous
// go from match to match without waiting for the rest.

import { Refused, ask } from "./fetch.js";
import { state } from "./live.js";
import { asQuery, filter } from "./state.js";

const PER_REQUEST = 1000;
const MOST_MATCHES = 10_000;
const LOOK_AGAIN_MS = 2_000;

/** `onChange()` when there is something new to show, `onRefused(sentence)` when the server refuses the pattern. */
export class Search {
  matches = []; // ascending numbers, of everything from `from` to `to`
  from = 0;
  to = 0;
  isDone = false;
  current = null;
  run = 0;
  isMoving = false;
  isRefused = false; // the server's sentence says why

  constructor({ onChange, onRefused }) {
    Object.assign(this, { onChange, onRefused });
    setInterval(() => this.goOn(), LOOK_AGAIN_MS);
  }

  /** Begin anew with the filter as it is now. */
  restart() {
    this.run += 1;
    Object.assign(this, { matches: [], from: 0, to: 0, isDone: !filter.search, current: null, isMoving: false, isScanning: false, isRefused: false });
    this.onChange();
    if (filter.search) this.scan();
  }

  async scan() {
    const run = this.run;
    this.isScanning = true;
    try {
      while (run === this.run && !this.isDone && this.matches.length < MOST_MATCHES) {
        const found = await this.find(this.from ? { before: this.from } : {}, PER_REQUEST);
        if (run !== this.run) return;
        this.matches = found.numbers.concat(this.matches);
        this.to ||= found.newest;
        this.from = Math.max(1, found.upto);
        this.isDone = found.done;
        this.onChange();
      }
    } catch (error) {
      if (run === this.run && error instanceof Refused) { this.isDone = this.isRefused = true; this.onChange(); this.onRefused(error.message); }
    } finally { if (run === this.run) this.isScanning = false; }
  }

  // What has been written since, and what an outage kept from being looked at.
  async goOn() {
    if (!filter.search || this.isScanning || document.hidden) return;
    if (!this.to) { if (!this.isDone) this.scan(); return; }
    if (state.newest <= this.to || this.matches.length >= MOST_MATCHES) return;
    const run = this.run;
    this.isScanning = true;
    try {
      const found = await this.find({ after: this.to }, PER_REQUEST);
      if (run !== this.run) return;
      this.matches = this.matches.concat(found.numbers);
      this.to = found.upto;
      this.onChange();
    } catch { /* the next time */ } finally { if (run === this.run) this.isScanning = false; }
  }

  find(where, limit) {
    const query = asQuery({ search: true });
    for (const [name, value] of Object.entries(where)) query.set(name, value);
    query.set("limit", limit);
    return ask(query, { path: "/find" });
  }

  /** The match behind a line (`step` 1) or before it (-1); null when there is none. Goes round at no end. */
  async next(number, step) {
    const known = step > 0 ? this.matches.find((each) => each > number) : this.matches.findLast((each) => each < number);
    const isCertain = step > 0 ? number + 1 >= this.from && known !== undefined : known !== undefined && number - 1 <= this.to;
    if (isCertain) return known;
    if (this.isMoving || (step < 0 && this.isDone && number <= this.to)) return null;
    const run = this.run;
    this.isMoving = true;
    try {
      const isInside = this.to && number >= this.from - 1 && number <= this.to + 1; // what lies between is known
      for (let at = step > 0 ? { after: isInside ? this.to : number } : { before: isInside ? this.from : number }; run === this.run;) {
        const found = await this.find(at, 1);
        if (run !== this.run) return null;
        if (found.number !== null || found.done) return found.number;
        at = step > 0 ? { after: found.upto } : { before: found.upto };
      }
      return null;
    } catch (error) {
      if (error instanceof Refused) this.onRefused(error.message);
      return null;
    } finally { this.isMoving = false; }
  }

  /** "3 / 15", "3 / 1,204 so far", "15 found", "10,000 found or more". */
  get words() {
    if (!filter.search || (this.isRefused && !this.matches.length)) return "";
    const count = this.matches.length;
    const full = count >= MOST_MATCHES;
    const some = full ? "10,000 or more" : this.isDone ? count.toLocaleString("en") : `${count.toLocaleString("en")} so far`;
    if (this.isDone && !count) return "no match";
    const index = this.current === null ? -1 : this.matches.indexOf(this.current);
    if (index >= 0) return `${(index + 1).toLocaleString("en")} / ${some}`;
    return full || !this.isDone ? some.replace(/^([\d,]+) (.*)$/, "$1 found $2") : `${some} found`;
  }
}
