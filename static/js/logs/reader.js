// Where one reads: at the end, which is followed while it grows, or at a place of the log, where nothing moves. Lines have
// numbers: history is read around one, the socket sends what comes after one, and so the two join without gap or repeat.

import { Refused, ask } from "./fetch.js";
import { foldAt, open as openFold } from "./folds.js";
import { FoundLines } from "./found.js";
import { WholeLog } from "./history.js";
import { RowList } from "./list.js";
import { isOpen, onFrame, onOpen, say } from "./live.js";
import { linesOf, rowElement } from "./row.js";
import { spans } from "./spans.js";
import { asQuery, filter, isFiltered, levels, look, place, remember } from "./state.js";
import { complain } from "./words.js";

const FIRST_PAGE = 500;
const REMEMBER_MS = 400;
const RETRY_MS = 2_000;
const AT_ONCE_MS = 100; // an answer within that is no wait
const TIME = 1;
const NOTHING = { lines: [], upto: 0, first: 1, last: 0, done: true, end: true };
const EPSILON_S = 1e-6; // the socket leaves out the time itself from which on lines are wanted

/** `isCurrent(number)` says which match the search stands at; `onShow()` is called when what is shown has changed. */
export class Reader {
  source = null;
  follows = true;
  unseen = 0; // lines that came since the view stands
  pausedAt = new Date();
  seen = { first: 0, last: 0 }; // indices of the rows in view
  generation = 0; // of what was asked for; `begun`: of what is shown
  begun = -1;
  columns = 80;
  shown = null; // the filter whose lines are here
  isAwaited = false; // none of them are

  constructor(view, { isCurrent, onShow, onHeard }) {
    Object.assign(this, { view, isCurrent, onShow, onHeard });
    this.list = new RowList(view, {
      makeRow: (index) => this.makeRow(index),
      count: () => this.source?.count ?? 0,
      lines: (index) => (foldAt(this.source, index) === 0 ? 0 : this.list.wraps ? linesOf(this.source.at(index), this.columns) : 1),
      onMove: (move) => this.moved(move),
    });
    onFrame((frame) => this.take(frame));
    onOpen(() => this.wish());
    this.dress();
  }

  makeRow(index) {
    const { source } = this;
    const number = source.isWhole ? index + 1 : source.at(index)[0];
    return rowElement(source.at(index), number, {
      spans, isCurrent: this.isCurrent(number), isContext: source.isContext(number), opensGroup: source.opensGroup(index),
      frames: foldAt(source, index),
    });
  }

  /** Show the frames that are folded at a line. */
  unfold(number) {
    openFold(this.source, this.source.indexOf(number));
    this.list.remake();
    this.list.settle();
  }

  /** The number of the line on top, 1 without any, and its time in epoch seconds (null while it is not here). */
  get top() { return this.source?.count ? this.source.numberAt(this.seen.first) : this.isAwaited ? this.awaited : 1; }
  get topTime() { return this.source?.at(this.seen.first)?.[TIME] ?? null; }

  isInView(number) {
    const index = this.source ? this.source.indexOf(number) : -1;
    return index >= this.seen.first && index <= this.seen.last;
  }

  // --- opening ---

  /** Read the log about a line, from a time on (epoch seconds), or at its end. */
  async openAt({ line = null, at = null } = {}) {
    this.generation += 1;
    const mine = this.generation;
    const query = asQuery();
    if (this.shown !== this.named) setTimeout(() => { if (mine === this.generation && this.begun !== mine) this.blank(line); }, AT_ONCE_MS);
    query.set("limit", FIRST_PAGE);
    if (at !== null) query.set("at", at);
    else if (line !== null) query.set("around", line);
    const context = filter.only && filter.search ? filter.context : 0;
    if (context) query.set("context", context);
    this.view.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(query);
      if (mine !== this.generation) return;
      complain("place", "");
      this.begin(answer, context);
      if (answer.line === undefined) this.follow();
      else this.stand(line, answer);
      this.wish();
    } catch (error) { // away: the mark beside the filters says so
      if (mine !== this.generation) return;
      if (error instanceof Refused) { complain("place", error.message); this.begin(NOTHING, 0); this.list.settle(); }
      else setTimeout(() => { if (mine === this.generation) this.openAt({ line, at }); }, RETRY_MS);
    } finally { if (mine === this.generation) this.view.removeAttribute("aria-busy"); }
  }

  get named() { return `${asQuery()} ${filter.only && filter.search ? filter.context : 0}`; }

  // Lines of another filter are not to be taken for those that are searched for.
  blank(line) {
    this.source?.close();
    Object.assign(this, { source: null, shown: null, isAwaited: true, awaited: line, seen: { first: 0, last: 0 } });
    this.list.clear();
    this.list.settle();
    this.onShow();
  }

  begin(answer, context) {
    this.source?.close();
    this.begun = this.generation;
    this.shown = this.named;
    this.isAwaited = false;
    const query = asQuery();
    if (context) query.set("context", context);
    const heard = { onNews: (shift) => this.news(shift), onRefused: (text) => complain("place", text) };
    this.source = isFiltered() ? new FoundLines({ query, context, ...heard }) : new WholeLog(heard);
    this.source.take(answer);
    this.unseen = 0;
    this.list.clear();
  }

  // Stand at the line that was asked for, or at the first one of the time.
  stand(line, answer) {
    this.pause();
    const index = this.source.indexOf(answer.line);
    if (line === null && place.at !== null) place.line = place.last = answer.line;
    this.list.show(index);
    const isThere = this.source.isWhole || this.source.at(index)?.[0] === line;
    if (line > answer.upto) complain("place", `There is no line ${line.toLocaleString("en")} yet; the log has ${answer.upto.toLocaleString("en")}.`);
    else if (line !== null && place.line === line && !isThere) complain("place", `Line ${line.toLocaleString("en")} does not match the filter.`);
  }

  // --- moving ---

  /** Go to a line; the server is asked when it is not here. */
  goTo(line) {
    if (!this.source?.has(line)) { this.openAt({ line }); return; }
    complain("place", "");
    this.pause();
    this.list.show(this.source.indexOf(line));
  }

  follow() {
    if (!this.source?.atEnd) { this.openAt(); return; }
    complain("place", "");
    this.follows = true;
    this.unseen = 0;
    this.remember(0);
    this.list.follow();
  }

  pause() {
    if (this.follows) this.pausedAt = new Date();
    this.follows = this.list.followsEnd = false;
  }

  moved({ first, last, byHand, up }) {
    this.seen = { first, last };
    const { source, list } = this;
    if (!source) return;
    if (byHand && up && this.follows && !list.isAtBottom) this.pause();
    if (byHand && list.isAtBottom && source.atEnd) { this.follows = true; this.unseen = 0; }
    if (this.follows !== list.followsEnd) { list.followsEnd = this.follows; list.draw(); }
    source.need(first, last);
    this.onShow();
    if (byHand) this.remember(REMEMBER_MS);
  }

  // Going back in the browser's history, or loading the page again, comes back here.
  remember(soon) {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => remember(this.follows ? null : this.top), soon);
  }

  // --- what comes ---

  // What the socket shall send: everything behind what is known.
  wish() {
    if (this.begun !== this.generation || !isOpen()) return; // else the rows are still those of the filter before
    say({
      generation: this.generation, after: this.known, ranks: filter.ranks, levels: levels(), hosts: filter.hosts, streams: filter.streams,
      after_time: filter.from === null ? null : filter.from - EPSILON_S, before_time: filter.to,
      search: filter.only ? filter.search : "", regex: filter.regex,
    });
  }

  get known() { return Math.max(this.source.upto, this.source.newest ?? 0); }

  take(frame) {
    if (frame.generation !== undefined && frame.generation !== this.generation) return;
    if (frame.error) complain("place", frame.error);
    if (!frame.lines || this.begun !== this.generation) return;
    const rows = frame.lines.filter(([number]) => number > this.known);
    this.source.append(rows, Math.max(frame.upto ?? 0, this.known), this.follows);
    say({ ack: this.known });
    if (this.follows) this.onHeard(rows);
    else this.unseen += rows.length;
    if (rows.length) this.news(0);
  }

  /** Rows have come; `shift` of them before the others (negative: were let go). */
  news(shift) {
    if (shift) this.list.shift(shift);
    this.list.remake((element) => this.isOld(element));
    this.list.draw();
  }

  // Whether its line has come, or its traceback has more frames now.
  isOld(element) {
    const index = this.source.indexOf(Number(element.dataset.number));
    if (element.classList.contains("absent")) return this.source.at(index) !== undefined;
    return (foldAt(this.source, index) ?? "").toString() !== (element.dataset.frames ?? "");
  }

  // --- how it looks ---

  dress() { this.view.closest("#log").classList.toggle("wraps", look.wrap); }

  /** Rows of one height, or wrapped ones; the line that the address points at, else the one on top, stays where it is. */
  wrap() {
    if (this.list.drawing) this.list.drawNow(); // so that what is seen is known
    const pointed = place.line !== null && this.isInView(place.line) ? this.source.indexOf(place.line) : this.seen.first;
    const y = this.list.yOf(pointed);
    this.dress();
    if (look.wrap) this.measure();
    this.list.reset({ wraps: look.wrap, row: pointed, y });
  }

  // The room of a wrapped text in characters: of the list's width, what the columns before it leave.
  measure() {
    const text = this.view.querySelector(".log-row:not(.absent) .text");
    if (!text) return;
    const probe = document.createElement("span");
    probe.className = "log-probe";
    probe.textContent = "0".repeat(100);
    this.view.append(probe);
    this.columns = Math.max(10, Math.floor((this.view.clientWidth - (text.offsetLeft + 12)) / (probe.offsetWidth / 100)));
    probe.remove();
  }
}
