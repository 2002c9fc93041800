// Brushing of parallel coordinates: a stretch that a pointer drags along an axis becomes bounds of that hyperparameter.

const LEAST_PX = 5; // less is a click, which lets go
const NEAR_PX = 26; // of an axis
const CLICK_MS = 400;

/** Whether an address keeps only some trials. */
export const brushed = (query) => [...query.keys()].some((name) => /^(min|max)(\.|$)|^is\./.test(name));

let last = { place: null, at: 0 }; // brush
/** Whether a click on this chart, which Plotly tells of some time after, was the end of a brush. */
export const wasBrushed = (place) => last.place === place && performance.now() - last.at < CLICK_MS;

const rounded = (value) => Number(value.toPrecision(4));

/** What the form is to hold for the stretch from `foot` to `top` (0 to 1) of an axis; null twice lets go. */
function changesFor({ name, kind, low, high, categories }, foot, top) {
  if (kind === "category") {
    const middle = (place) => (place - low) / (high - low);
    const chosen = foot === null ? [] : categories.filter((_, place) => middle(place) >= foot && middle(place) <= top);
    return { [`is.${name}`]: chosen };
  }
  const valueAt = (height) => {
    const place = low + height * (high - low);
    return rounded(kind === "log" ? 10 ** place : place);
  };
  const said = (end) => (name ? `${end}.${name}` : end);
  return { [said("min")]: foot === null ? "" : valueAt(foot), [said("max")]: foot === null ? "" : valueAt(top) };
}

/** Follow a pointer over a chart that has been drawn. `brushes()`: its axes from left to right, or nothing. */
export function brushing(place, brushes, change) {
  let from = null; // {axis, y}
  const mark = document.createElement("div");
  mark.className = "brush";
  mark.hidden = true;

  const size = () => place._fullLayout;
  const inside = (event) => {
    const { left, top } = place.getBoundingClientRect();
    return { x: event.clientX - left - size()._size.l, y: event.clientY - top - size()._size.t };
  };
  const heightOf = (y) => Math.min(1, Math.max(0, size().yaxis.p2l(y)));

  place.addEventListener("pointerdown", (event) => {
    const axes = brushes();
    if (!axes || event.button !== 0) return;
    const { x, y } = inside(event);
    const axis = Math.round(size().xaxis.p2l(x));
    if (!axes[axis] || Math.abs(size().xaxis.l2p(axis) - x) > NEAR_PX) return;
    from = { axis, y };
  }, { capture: true });

  addEventListener("pointermove", (event) => {
    if (!from) return;
    const { y } = inside(event);
    place.append(mark);
    mark.hidden = Math.abs(y - from.y) < LEAST_PX;
    mark.style.left = `${size()._size.l + size().xaxis.l2p(from.axis) - 9}px`;
    mark.style.top = `${size()._size.t + Math.min(y, from.y)}px`;
    mark.style.height = `${Math.abs(y - from.y)}px`;
  });

  addEventListener("pointerup", (event) => {
    if (!from) return;
    const { axis, y: begun } = from;
    const { y } = inside(event);
    from = null;
    mark.hidden = true;
    last = { place, at: performance.now() };
    const isClick = Math.abs(y - begun) < LEAST_PX;
    const [foot, top] = [heightOf(Math.max(y, begun)), heightOf(Math.min(y, begun))];
    change(changesFor(brushes()[axis], isClick ? null : foot, isClick ? null : top));
  });
  addEventListener("pointercancel", () => { from = null; mark.hidden = true; });
}
