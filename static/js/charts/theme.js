// Colors of the page for charts, and its axes in them.

/** {ink, ink2, line, panel} as they are now; they follow the theme. */
export function colors() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return { ink: get("--ink"), ink2: get("--ink-2"), line: get("--line"), panel: get("--panel") };
}

/** A text that Plotly draws letter by letter: what users and hosts have named might be links or other markup to it. */
export const literal = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** The traces with their names taken literally; a line of INK ("black", metrics/comparisons.py) takes the page's ink. */
export const named = (traces) => traces.map((trace) => ({
  ...trace, ...(trace.name ? { name: literal(trace.name) } : {}),
  ...(trace.line?.color === "black" ? { line: { ...trace.line, color: colors().ink } } : {}),
}));

const LEGEND_ROW = 19; // pixels
const LETTER = 7;

/** Pixels that a legend of these names needs in this place. */
export function legendHeight(names, place) {
  const perRow = Math.max(1, Math.floor(((place.clientWidth || 320) - 20) / (46 + LETTER * Math.max(0, ...names.map(({ length }) => length)))));
  return LEGEND_ROW * Math.ceil(names.length / perRow);
}

/** What all charts share of their layout: nothing of their own paper, ink for letters, hairlines for the grid; titles are literal. */
export function themed(layout) {
  const { ink, ink2, line, panel } = colors();
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: ink2 } };
  const titled = (own) => ({ ...axis, ...own, title: { ...own?.title, text: literal(own?.title?.text ?? ""), font: { size: 12, color: ink2 } } });
  return {
    ...layout,
    autosize: true,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink2, activecolor: ink },
    hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: ink } },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 12, family: '"IBM Plex Sans", system-ui, sans-serif' },
    xaxis: titled(layout.xaxis),
    yaxis: titled(layout.yaxis),
    ...Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis\d+$/.test(name)).map(([name, own]) => [name, titled(own)])),
  };
}

/**
 * The layout with an axis around a value that never changes: Plotly's goes from one below it to one above, where a small
 * one lies at zero, and the words of a large one are all the same.
 */
export function aroundConstant(traces, layout) {
  const axis = layout.yaxis ?? {};
  const lines = traces.every((trace) => trace.type === "scatter" && !trace.yaxis && !trace.fill);
  if (!lines || axis.range || axis.rangemode || (axis.type ?? "linear") !== "linear") return layout;
  const values = traces.flatMap((trace) => trace.y).filter(Number.isFinite);
  const [value] = values;
  if (!value || values.some((other) => other !== value)) return layout;
  const [low, high] = [value - Math.abs(value) / 10, value + Math.abs(value) / 10];
  const around = high - value < 1 ? { clipmin: low, clipmax: high } : { include: [low, high] };
  return { ...layout, yaxis: { ...axis, autorangeoptions: around } };
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
