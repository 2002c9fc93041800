// What the charts in view lack, brought by one request at a time: whole lines, what has come since, or details of a window.

const AGAIN_MS = 3_000;

/**
 * A panel has {isInView, base, detail, isBehind, points}. `panels()` gives all of them, `show(panel)` draws one. `bring(panels,
 * signal)` gives those that it has brought up to date, `bringDetail(panels, window, signal)` brings the points inside
 * {from, to}, which `lacksDetail(panel)` says are more than there are at hand; `state` has the window. Nothing changes
 * beneath a button of the mouse that is held in `section`.
 */
export function loader({ section, state, panels, show, bring, bringDetail, lacksDetail }) {
  let asking = null; // of the request on its way
  let isHeld = false;
  let showing = 0;
  let isPainting = false; // load() follows the next frame
  let behindTimer = null;

  async function showAll() {
    const mine = showing += 1;
    for (const panel of panels()) {
      if (!panel.isInView) continue;
      if (mine !== showing) return; // a newer look of all of them is on its way
      await show(panel);
      await new Promise(requestAnimationFrame); // the page can be used between two charts
    }
  }

  async function load() {
    if (asking || isHeld) return;
    const shown = panels().filter((panel) => panel.isInView);
    const bases = shown.filter((panel) => !panel.base || panel.isBehind);
    const window = { from: state.from, to: state.to };
    const hasWindow = window.from !== null || window.to !== null;
    const isStale = ({ detail }) => detail?.from !== window.from || detail?.to !== window.to;
    const details = hasWindow ? shown.filter((panel) => panel.base && isStale(panel) && lacksDetail(panel)) : [];
    if (!bases.length && !details.length) return;
    const mine = asking = new AbortController();
    let brought = details;
    for (const panel of bases) panel.isBehind = false; // what comes from here on is for the next request
    try {
      if (bases.length) brought = await bring(bases, mine.signal);
      else await bringDetail(details, window, mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      for (const panel of bases) { panel.isBehind = true; if (!panel.base) panel.points.textContent = `${error.message} Retrying.`; }
      setTimeout(() => { if (asking === mine) { asking = null; load(); } }, AGAIN_MS);
      return;
    }
    if (asking !== mine) return;
    asking = null;
    for (const panel of bases) if (!brought.includes(panel)) panel.isBehind = true;
    for (const panel of brought) await show(panel);
    loadOncePainted();
  }

  /** Let the browser paint before loading more. A hidden tab has no frames. */
  function loadOncePainted() {
    if (document.hidden) { load(); return; }
    if (isPainting) return;
    isPainting = true;
    requestAnimationFrame(() => setTimeout(() => { isPainting = false; load(); }));
  }

  /** Bring all anew: what is at hand is of another axis or another smoothing. The old stays drawn until the new comes. */
  function forget() {
    asking?.abort();
    asking = null;
    for (const panel of panels()) Object.assign(panel, { base: null, detail: null });
    load();
  }

  /** There is more: bring it after so long. */
  function fallBehind(delayMs) {
    behindTimer ??= setTimeout(() => {
      behindTimer = null;
      for (const panel of panels()) panel.isBehind = true;
      load();
    }, delayMs);
  }

  section.addEventListener("pointerdown", () => { isHeld = true; });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { isHeld = false; load(); });
  document.addEventListener("themechange", showAll);
  return { load, showAll, forget, fallBehind };
}
