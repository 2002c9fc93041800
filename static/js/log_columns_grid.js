// Lines of some ranks as rows that are aligned in time: a row holds at most one line of each rank, and its lines were
// written within a moment of one another.

const MOMENT_S = 0.25;
const [NUMBER, TIME, RANK] = [0, 1, 2];

/** A row opens after a pause when nothing was written for so long before it. */
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
  let row = null;
  for (const { time, column, line } of timed) {
    if (!row || row.cells[column] || time - row.time > MOMENT_S) {
      row = { time, cells: new Array(ranks.length).fill(null), pause: row ? time - row.time : 0 };
      rows.push(row);
    }
    row.cells[column] = line;
  }
  return rows;
}

/** The index of the row that holds the line of this number, -1 without it. */
export const rowOf = (rows, number) => rows.findIndex(({ cells }) => cells.some((line) => line?.[NUMBER] === number));
