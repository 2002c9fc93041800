// Times of a log: shown in UTC, in the browser's own zone or not at all; read from what a person types.

const two = (number) => String(number).padStart(2, "0");

/** Epoch seconds as 12:43:52.164, empty for "none". */
export function clock(time, zone) {
  if (zone === "none") return "";
  const at = new Date(time * 1000);
  if (Number.isNaN(at.getTime())) return "";
  if (zone === "utc") return at.toISOString().slice(11, 23);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** Epoch seconds as 2026-11-21, in the zone. */
export function day(time, zone) {
  const at = new Date(time * 1000);
  if (Number.isNaN(at.getTime())) return "";
  return zone === "local" ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}` : at.toISOString().slice(0, 10);
}

/** The zone's name as it stands beside times: "UTC", "UTC+2", "UTC−3:30". */
export function zoneName(zone, time = Date.now() / 1000) {
  if (zone !== "local") return "UTC";
  const minutes = -new Date(time * 1000).getTimezoneOffset();
  const rest = Math.abs(minutes) % 60;
  return minutes ? `UTC${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${two(rest)}` : ""}` : "UTC";
}

/**
 * What a person wrote, in epoch seconds: 10:41, 10:41:05.5, 2026-11-21 10:41 or ISO 8601; without a day it is that of
 * `near` (epoch seconds), without a zone it is the one that is shown. null when it is no time.
 */
export function readTime(text, zone, near) {
  const [, date, hours, minutes, rest, offset] = /^(?:(\d{4}-\d\d-\d\d)(?:[T ]|$))?(?:(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?$/i.exec(text.trim()) ?? [];
  if (!date && hours === undefined) return null;
  const iso = `${date ?? day(near, zone)}T${two(hours ?? 0)}:${minutes ?? "00"}:${rest ?? "00"}`;
  const end = offset ? offset.replace(/utc/i, "Z") : zone === "local" ? "" : "Z";
  const time = Date.parse(iso + end) / 1000;
  return Number.isFinite(time) ? time : null;
}

/** Epoch seconds as a field for a time takes it, in the zone. */
export function writeTime(time, zone) {
  if (time === null) return "";
  const text = `${day(time, zone)} ${clock(time, zone === "local" ? "local" : "utc")}`;
  return text.replace(/\.000$/, "");
}
