// The parts of the view without a page, tested by `node --test widgets/test`.

/**
 * @typedef {{counts: string, progress: [state: string, share: number][], facts: [string, string][], left: string,
 *   paused: boolean, took: string}} Head
 * @typedef {[kind: string, value: string, percent: number | null, level: string, hint: string]} Meter
 * @typedef {{level: string, word: string, notes: string, meters: Meter[]}} Strip
 * @typedef {{span: number, ticks: [number, string][]}} Axis
 * @typedef {[line: string, tail: string, share: number | null, badge: string, since: number | null]} Card
 * @typedef {[kind: string, tone: string, from: number, to: number | null, what?: string]} Bar
 * @typedef {[parts: number[], total: number, share: string, done: string, rest: string, tone: string,
 *   who: string, answer: string]} Tally
 * @typedef {{nodes?: Record<string, Card>, bars?: Record<string, Bar[]>, groups?: Record<string, Tally>,
 *   flows?: Record<string, number>, path?: number[], axis?: Axis, now?: number | null, head?: Head,
 *   strip?: Strip | null, alerts?: string[]}} Delta
 * @typedef {{x: number, y: number, w: number, row: number, bar: number, bottom: number}} Plot
 * @typedef {{label: string, where: string, agents: [number, number][]}} Group
 * @typedef {{x: number, pitch: number, size: number, columns: number}} Cells
 */

/**
 * The indices at which two strings of states differ.
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
 * The position of a bar. A bar without an end extends to the present.
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
  const height = kind === "q" ? Math.min(3, plot.bar / 2) : kind === "t" ? (plot.bar * 7) / 11 : plot.bar;
  const middle = plot.y + row * plot.row + plot.bar / 2;
  return { x: start, y: middle - height / 2, width, height, middle, radius: kind > "4" ? Math.min(2.5, height / 2, width / 2) : 0 };
}

/**
 * A path of cells per state: a dashed line for each run of neighbours.
 * @param {string} states in the order of the cells
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
 * The size of the cells of a group, and their number in a row.
 * @param {number} count
 * @param {number} width
 * @returns {Cells}
 */
export function cellsFor(count, width) {
  const pitch = count <= 600 ? 16 : count <= 3000 ? 11 : 8;
  return { x: 0, pitch, size: pitch * 0.78, columns: Math.max(1, Math.floor(width / pitch)) };
}

/**
 * Expand runs of (first, count) to numbers.
 * @param {[number, number][]} stretches first, how many
 * @returns {number[]}
 */
export function unfold(stretches) {
  return stretches.flatMap(([first, count]) => Array.from({ length: count }, (_, place) => first + place));
}

/**
 * The parts of a ring, clockwise from the top.
 * @param {number[]} parts
 * @param {number} total
 * @param {number} length of the whole ring
 * @returns {[long: number, start: number][]}
 */
export function arcs(parts, total, length) {
  let start = 0;
  return parts.map((part) => {
    const long = (length * part) / (total || 1);
    start += long;
    return [long, start - long];
  });
}

/**
 * Write a duration as the kernel does.
 * @param {number} value
 */
export function seconds(value) {
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const two = (/** @type {number} */ one) => String(one).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

/**
 * The commands for an agent in a state.
 * @param {string} state
 * @returns {("retry" | "skip")[]}
 */
export function verbsFor(state) {
  if ("fkc".includes(state)) return ["retry"];
  return "pqr".includes(state) ? ["skip"] : [];
}

/**
 * A coordinate with at most one decimal.
 * @param {number} value
 */
export function short(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

/**
 * The progress in words, for screen readers.
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
 * The index that has the focus after an arrow key.
 * @param {string} key
 * @param {number} here
 * @param {number} count
 * @param {number} [row] how far up and down go
 */
export function nextFocus(key, here, count, row = 1) {
  const step = { ArrowRight: 1, ArrowDown: row, ArrowLeft: -1, ArrowUp: -row }[key];
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return step === undefined ? here : Math.min(count - 1, Math.max(0, here + step));
}

/**
 * The position of a panel: beside its card, else at the edge with room, inside the view.
 * @param {{left: number, right: number, top: number}} card
 * @param {{width: number, height: number}} view
 * @param {{width: number, height: number}} panel
 */
export function besideCard(card, view, panel) {
  const gap = 10;
  const right = card.right + gap;
  const left = card.left - gap - panel.width;
  const x = right + panel.width <= view.width ? right : left >= 0 ? left : Math.max(0, view.width - panel.width - gap);
  return { x, y: Math.max(gap, Math.min(card.top - gap, view.height - panel.height - gap)) };
}
