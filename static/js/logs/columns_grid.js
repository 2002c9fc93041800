// Lines of some ranks as rows that are aligned in time: what was written within a moment stands together, the first line
// of each rank in the first row of the moment, the second in the second.

const MOMENT_S = 0.25;
const [NUMBER, TIME, RANK] = [0, 1, 2];

/** A row stands behind a pause when nothing was written for so long before it. */
export const PAUSE_S = 10;

/**
 * [{time, cells, pause}…], oldest first: `cells` has a line or null for each of `ranks`, `pause` the seconds since the row
 * before. `lines` are [number, time, rank…]; each rank's stay in the order of their numbers, whatever its clock did.
 */
export function align(lines, ranks) {
  const columns = new Map(ranks.map((rank, column) => [rank, column]));
  const latest = new Map();
  const timed = [];
  for (const line of [...lines].sort((one, other) => one[NUMBER] - other[NUMBER])) {
    const rank = line[RANK] ?? -1;
    if (!columns.has(rank)) continue;
    const time = Math.max(line[TIME], latest.get(rank) ?? 0);
    latest.set(rank, time);
    timed.push({ time, column: columns.get(rank), line });
  }
  timed.sort((one, other) => one.time - other.time || one.line[NUMBER] - other.line[NUMBER]);
  const rows = [];
  let [from, first, counts] = [-Infinity, 0, []];
  for (const { time, column, line } of timed) {
    if (time - from > MOMENT_S) [from, first, counts] = [time, rows.length, new Array(ranks.length).fill(0)];
    const at = first + counts[column];
    counts[column] += 1;
    if (at === rows.length) rows.push({ time, cells: new Array(ranks.length).fill(null), pause: at ? time - rows[at - 1].time : 0 });
    rows[at].cells[column] = line;
  }
  return rows;
}

/** The index of the row that holds the line of this number, -1 without it. */
export const rowOf = (rows, number) => rows.findIndex(({ cells }) => cells.some((line) => line?.[NUMBER] === number));
