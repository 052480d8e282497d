// What the view works out without a page: tested by `node --test widgets/test`.

/**
 * @typedef {{counts: string, progress: [number, number][], facts: [string, string][]}} Head
 * @typedef {{span: number, ticks: [number, string][]}} Axis
 * @typedef {[line: string, tail: string, share: number | null, badge: string, hint: string]} Card
 * @typedef {[kind: string, tone: string, from: number, to: number | null]} Bar
 * @typedef {{nodes?: Record<string, Card>, bars?: Record<string, Bar[]>, tally?: Record<string, string[]>,
 *   path?: number[], axis?: Axis, now?: number | null, head?: Head}} Delta
 * @typedef {{x: number, y: number, w: number, row: number, bar: number, bottom: number}} Plot
 * @typedef {{y: number, agents: number[]}} Band
 * @typedef {{x: number, pitch: number, size: number, columns: number, bands: Band[]}} Cells
 */

/**
 * The places at which two strings of states differ.
 * @param {string} before
 * @param {string} after
 * @returns {number[]}
 */
export function changedPlaces(before, after) {
  const places = [];
  for (let place = 0; place < after.length; place++) {
    if (after[place] !== before[place]) places.push(place);
  }
  return places;
}

/**
 * Where a bar stands. A bar without an end reaches to the present.
 * @param {Bar} bar
 * @param {number} row
 * @param {Plot} plot
 * @param {number} span
 * @param {number} now
 */
export function barBox([kind, , from, to], row, plot, span, now) {
  const at = (/** @type {number} */ time) => plot.x + (time / span) * plot.w;
  const start = at(from);
  const width = Math.max(1.5, at(to ?? Math.max(from, now)) - start);
  const height = kind === "q" ? 3 : plot.bar;
  const middle = plot.y + row * plot.row + plot.bar / 2;
  return { x: start, y: middle - height / 2, width, height, middle, radius: Math.min(2.5, height / 2, width / 2) };
}

/**
 * Per state, the lines that draw the cells of a band: one dashed line for each run of neighbours.
 * @param {string} states of the agents of the band, in the order of its cells
 * @param {Cells} cells
 * @param {number} top
 * @returns {Record<string, string>}
 */
export function cellPaths(states, cells, top) {
  /** @type {Record<string, string>} */
  const paths = {};
  let start = 0;
  for (let place = 1; place <= states.length; place++) {
    const goesOn = place < states.length && place % cells.columns !== 0 && states[place] === states[start];
    if (goesOn) continue;
    const x = cells.x + (start % cells.columns) * cells.pitch;
    const y = top + Math.floor(start / cells.columns) * cells.pitch + cells.size / 2;
    const length = (place - start - 1) * cells.pitch + cells.size;
    const state = /** @type {string} */ (states[start]);
    paths[state] = `${paths[state] ?? ""}M${short(x)} ${short(y)}h${short(length)}`;
    start = place;
  }
  return paths;
}

/**
 * A coordinate with at most one decimal.
 * @param {number} value
 */
export function short(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

/**
 * Count what is done, for people who listen to the page.
 * @param {string} states
 */
export function spoken(states) {
  let done = 0;
  let failed = 0;
  for (const state of states) {
    if ("slym".includes(state)) done++;
    if (state === "f") failed++;
  }
  return `${done} of ${states.length} agents done${failed ? `, ${failed} failed` : ""}`;
}

/**
 * The agent that has the keyboard after an arrow key.
 * @param {string} key
 * @param {number} here
 * @param {number} count
 */
export function nextFocus(key, here, count) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return step === undefined ? here : Math.min(count - 1, Math.max(0, here + step));
}
