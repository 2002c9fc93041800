// A list of rows of which only those in view exist. Its position is a row and how far that one is scrolled out above the
// edge; the browser's scroll bar follows it. A small step of the bar moves the rows by as many pixels, whatever the bar's
// scale and the rows' heights; a large one goes where the bar points. When the bar rests it is set to where it belongs.

import { fromBar, heightFor, toBar } from "./scale.js";

export const ROW = 19;
const OVERSCAN = 20; // rows kept ready on both sides
const SMALL = 3; // heights of the view that a scroll may go and still be one of pixels
const REST_MS = 140;
const EXACT = 400; // rows at both ends over which unequal heights are added up
const KEPT_FOR_SELECTION = 2_000;

/**
 * `makeRow(index)` makes a row's element, `count()` says how many rows there are, `lines(index)` how many lines of text a row
 * has: more than one where it is wrapped, none where it is hidden. `onMove({first, last, byHand})` is called after each step
 * with the rows in view.
 */
export class RowList {
  top = { row: 0, out: 0 }; // the row at the upper edge, and how many pixels of it are above
  followsEnd = false;
  wraps = false;
  average = ROW; // height of rows that are not in the page
  bar = 0; // where the scroll bar stood when we last looked
  begin = 0; // index of the first element in the page
  elements = [];
  drawing = 0;
  resting = 0;

  constructor(view, { makeRow, count, lines, onMove }) {
    Object.assign(this, { view, makeRow, count, lines, onMove });
    this.space = view.querySelector(".log-space");
    this.layer = view.querySelector(".log-rows");
    this.height = view.clientHeight;
    this.spaceHeight = 0;
    view.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.resized()).observe(view);
    new ResizeObserver(() => this.widened()).observe(this.layer);
  }

  get total() { return this.count() * this.average; }

  // --- moving ---

  scrolled() {
    const bar = this.view.scrollTop;
    // A view that grows at its end has its bar moved by the browser: resized() follows. Elsewhere a person moved it.
    if (this.view.clientHeight !== this.height && bar >= this.spaceHeight - this.view.clientHeight - 1) return;
    const step = bar - this.bar;
    if (Math.abs(step) < 0.5) return;
    this.bar = bar;
    const most = this.spaceHeight - this.height;
    if (this.followsEnd) this.top = this.atBottom(); // by true heights, which are known only now
    if (bar >= most - 1) this.top = this.atBottom();
    else if (bar <= 0) this.top = { row: 0, out: 0 };
    else if (Math.abs(step) <= SMALL * this.height) this.walk(step);
    else this.pointTo(fromBar(bar, this.total));
    this.followsEnd = false; // whoever listens decides whether the end is followed
    this.rest();
    this.draw({ byHand: true, up: step < 0 });
  }

  get isAtBottom() { return this.bar >= this.spaceHeight - this.height - ROW; }

  pointTo(y) {
    const row = Math.max(0, Math.min(this.count() - 1, Math.floor(y / this.average)));
    this.top = { row, out: ((y - row * this.average) / this.average) * this.heightOf(row) };
    this.walk(0);
  }

  walk(step) {
    let { row, out } = this.top;
    out += step;
    while (out < 0 && row > 0) { row -= 1; out += this.heightOf(row); }
    while (row < this.count() - 1 && out >= this.heightOf(row)) { out -= this.heightOf(row); row += 1; }
    this.top = this.orBottom({ row, out: Math.max(0, out) });
  }

  /** Not beyond the place where the last row stands at the lower edge. */
  orBottom(top) {
    const bottom = this.atBottom();
    return top.row > bottom.row || (top.row === bottom.row && top.out > bottom.out) ? bottom : top;
  }

  atBottom() {
    let [row, room] = [this.count(), this.height];
    while (row > 0 && room > 0) { row -= 1; room -= this.heightOf(row); }
    return room > 0 ? { row: 0, out: 0 } : { row, out: -room };
  }

  /** Show the row at a part of the view's height: 0 the upper edge, 0.5 the middle. */
  show(index, part = 0.4) {
    this.followsEnd = false;
    this.top = { row: Math.max(0, Math.min(index, this.count() - 1)), out: 0 };
    this.walk(-part * (this.height - ROW));
    this.settle();
  }

  follow() { this.followsEnd = true; this.settle(); }

  /** So many rows came before the others (negative: were let go): what is seen stays where it is. */
  shift(rows) {
    this.begin += rows;
    this.top = this.top.row + rows < 0 ? { row: 0, out: 0 } : { row: this.top.row + rows, out: this.top.out };
    if (this.begin < 0) { for (const element of this.elements.splice(0, -this.begin)) element.remove(); this.begin = 0; }
    this.settle();
  }

  get first() { return this.top.row; }

  // --- heights ---

  heightOf(row) {
    const element = this.wraps ? this.elements[row - this.begin] : null;
    return element ? element.offsetHeight : ROW * this.lines(row);
  }

  /** Pixels of the rows above the upper edge, as the scroll bar is to show them. */
  position() {
    const { row, out } = this.top;
    const count = this.count();
    if (row < Math.min(EXACT, count / 2)) return this.sum(0, row) + out;
    if (row > count - EXACT) return this.total - this.sum(row, count) + out;
    return (row + out / this.heightOf(row)) * this.average;
  }

  sum(from, to) {
    let sum = 0;
    for (let row = from; row < to; row += 1) sum += this.heightOf(row);
    return sum;
  }

  /** Pixels from the upper edge of the view to that of a row in it. */
  yOf(row) { return this.sum(this.top.row, row) - this.top.out; }

  /** What rows are like has changed: all are made anew, and `row` stands `y` pixels below the upper edge again. */
  reset({ wraps, row, y }) {
    this.wraps = wraps;
    this.layer.style.minWidth = "";
    this.remake();
    this.average = wraps ? this.estimate() : ROW;
    this.moveTo(row, y);
    this.drawNow(); // rows that were not in the page have true heights only now
    this.moveTo(row, y);
    this.settle();
  }

  moveTo(row, y) {
    if (this.followsEnd || !this.count()) return;
    this.top = { row, out: 0 };
    this.walk(-Math.max(y, 1 - this.heightOf(row)));
  }

  estimate() {
    const from = Math.max(0, this.top.row - EXACT);
    const to = Math.min(this.count(), this.top.row + EXACT);
    if (from >= to) return ROW;
    let sum = 0;
    for (let row = from; row < to; row += 1) sum += ROW * this.lines(row);
    return sum / (to - from);
  }

  resized() {
    if (this.height === this.view.clientHeight && !this.wraps) return;
    this.height = this.view.clientHeight;
    this.bar = this.view.scrollTop; // a view that grows at the end of its rows has fewer of them above it
    if (this.count()) this.top = this.orBottom(this.top);
    if (this.wraps) this.average = this.estimate();
    this.settle();
  }

  // The widest row that was seen keeps its room, so that the bar below does not come and go.
  widened() {
    const wide = this.layer.offsetWidth;
    if (!this.wraps && wide > this.view.clientWidth && wide > (parseFloat(this.layer.style.minWidth) || 0)) this.layer.style.minWidth = `${wide}px`;
  }

  // --- drawing ---

  rest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.settle(), REST_MS);
  }

  /** Draw, and set the scroll bar to where it belongs. */
  settle() { this.isSettling = true; this.draw(); }

  draw(move = {}) {
    this.move = { ...this.move, ...move };
    this.drawing ||= requestAnimationFrame(() => { this.drawing = 0; this.drawNow(); });
  }

  drawNow() {
    if (this.followsEnd) this.top = this.atBottom();
    else if (this.top.row >= this.count()) this.top = this.atBottom();
    else if (!this.heightOf(this.top.row)) this.walk(0); // it is hidden now
    const { row, out } = this.top;
    let last = row;
    for (let room = this.height + out; room > 0 && last < this.count(); last += 1) room -= this.heightOf(last);
    this.patch(Math.max(0, row - OVERSCAN), Math.min(this.count(), last + OVERSCAN));
    this.setBar();
    this.place();
    const move = this.move ?? {};
    this.move = null;
    this.onMove({ first: row, last: Math.max(row, last - 1), ...move });
  }

  setBar() {
    const height = heightFor(this.total);
    let moved = false;
    if (height !== this.spaceHeight) {
      this.space.style.height = `${height}px`;
      this.spaceHeight = height;
      moved = true;
    }
    if (this.followsEnd || this.isSettling) {
      const bar = this.followsEnd ? Math.max(0, height - this.height) : toBar(this.position(), this.total);
      if (Math.abs(bar - this.bar) >= 1) { this.view.scrollTop = bar; moved = true; }
      this.isSettling = false;
    }
    if (moved) this.bar = this.view.scrollTop;
  }

  place() {
    const element = this.elements[this.top.row - this.begin];
    const above = this.wraps ? element?.offsetTop ?? 0 : this.sum(this.begin, this.top.row);
    let y = this.bar - this.top.out - above;
    if (this.wraps && this.followsEnd) y = Math.max(0, this.bar + this.height - this.layer.offsetHeight);
    this.layer.style.transform = `translateY(${y}px)`;
  }

  /** The rows from index `first` up to but without `end` are in the page, those of a selection beside them. */
  patch(first, end) {
    const [from, to] = this.kept(first, end);
    if (!this.elements.length || from >= this.begin + this.elements.length || to <= this.begin) {
      this.begin = from;
      this.elements = this.made(from, to);
      this.layer.replaceChildren(...this.elements);
      return;
    }
    while (this.begin < from) { this.elements.shift().remove(); this.begin += 1; }
    while (this.begin + this.elements.length > to) this.elements.pop().remove();
    const before = this.made(from, this.begin);
    const after = this.made(this.begin + this.elements.length, to);
    if (before.length) { this.layer.prepend(...before); this.elements.unshift(...before); this.begin = from; }
    if (after.length) { this.layer.append(...after); this.elements.push(...after); }
  }

  made(from, to) {
    const rows = [];
    for (let index = from; index < to; index += 1) rows.push(this.makeRow(index));
    return rows;
  }

  /** Rows that are marked with the mouse stay while one scrolls on, up to a limit. */
  kept(first, end) {
    const selection = getSelection();
    if (selection.isCollapsed) return [first, end];
    let [from, to] = [first, end];
    for (const node of [selection.anchorNode, selection.focusNode]) {
      const index = this.elements.findIndex((element) => element.contains(node));
      if (index >= 0) [from, to] = [Math.min(from, this.begin + index), Math.max(to, this.begin + index + 1)];
    }
    return to - from <= KEPT_FOR_SELECTION ? [from, to] : [first, end];
  }

  /** Make the rows anew that `isOld(element)` names; without it all. */
  remake(isOld = () => true) {
    this.elements.forEach((element, index) => {
      if (!isOld(element)) return;
      const index_ = this.begin + index;
      if (index_ >= this.count()) return;
      this.elements[index] = this.makeRow(index_);
      element.replaceWith(this.elements[index]);
    });
  }

  /** The row's element, if it is in the page. */
  element(index) { return this.elements[index - this.begin]; }

  /** Begin anew with other rows. */
  clear() {
    this.elements = [];
    this.begin = 0;
    this.top = { row: 0, out: 0 };
    this.layer.replaceChildren();
    this.average = this.wraps ? this.estimate() : ROW;
  }
}
