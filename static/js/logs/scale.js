// Where a position in a long log stands on the scroll bar. Browsers limit the height of an element (about 33 million pixels
// in Chromium, 17 million in Firefox; 10 million lines would be 190 million): beyond MOST the middle is compressed, while
// both ends stay true to the pixel, so that nobody who scrolls there runs against an end before the log has one.

export const MOST = 8_000_000;
const END = 1_000_000;

/** Height of the scroll bar's range for so many pixels of rows. */
export const heightFor = (total) => Math.min(total, MOST);

/** Pixel of the rows -> pixel of the scroll bar. */
export function toBar(y, total) {
  if (total <= MOST || y <= END) return y;
  if (y >= total - END) return MOST - (total - y);
  return END + ((y - END) * (MOST - 2 * END)) / (total - 2 * END);
}

/** Pixel of the scroll bar -> pixel of the rows. */
export function fromBar(bar, total) {
  if (total <= MOST || bar <= END) return bar;
  if (bar >= MOST - END) return total - (MOST - bar);
  return END + ((bar - END) * (total - 2 * END)) / (MOST - 2 * END);
}
