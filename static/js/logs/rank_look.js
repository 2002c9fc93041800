// How a rank looks and what is said of it, the same in chips, the heat map, columns and rows.

import { spell } from "../frame.js";

const HUES = 16;

/** Class with the rank's color (static/css/ranks.css); none outside ranks. Its number always stands beside it. */
export const hueOf = (rank) => (rank === null || rank < 0 ? "" : `hue-${rank % HUES}`);

/** Seconds as "0.1 s", "14 s", "3 min"; empty where nobody knows, as before a rank's first line. */
export const ago = (seconds) => ((seconds ?? null) === null ? "" : seconds < 10 ? `${seconds.toFixed(1)} s` : spell(seconds));

/** 12304 as "12.3k". */
export function short(count) {
  if (count < 1_000) return `${count}`;
  const [size, unit] = count < 1_000_000 ? [1_000, "k"] : [1_000_000, "M"];
  return `${(count / size).toFixed(count < 10 * size ? 1 : 0)}${unit}`;
}

export const number = (count) => count.toLocaleString("en");

/** Where its training stands: "ended", "step 1,202 · 14 s"; without steps whether its processes work; empty when nobody knows. */
export function progress({ step, stepAge, active, ended }) {
  if (ended) return "ended";
  if (step !== undefined && step !== null) return [`step ${number(step)}`, ago(stepAge)].filter(Boolean).join(" · ");
  if (active === true) return "working";
  return active === false ? "idle" : "";
}

/** All that is known of a rank, in one or two sentences. */
export function describe(entry) {
  const { rank, host, lines, age, mark } = entry;
  const wrote = lines ? `${number(lines)} line${lines === 1 ? "" : "s"}, the last ${ago(age)} ago` : "no line yet";
  if (rank < 0) return `No rank: ${wrote}.`;
  const stands = progress(entry);
  return `Rank ${rank} on ${host}: ${stands ? `${stands}; ` : ""}${wrote}.${mark ? ` ${sentence(mark)}` : ""}`;
}

/** A mark as a sentence of its own. */
export const sentence = (mark) => mark[0].toUpperCase() + mark.slice(1);

/** Age of its progress in seconds for an order of the worst first; null when nobody knows of any. */
export const progressAge = ({ stepAge, active }) => (stepAge ?? (active === true ? 0 : null));

/** Set the text only where it changes: the page is told each second. */
export function write(element, text) { if (element.textContent !== text) element.textContent = text; }
