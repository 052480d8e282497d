// What a notebook saves of a view. A saved view without its kernel is an error message: this keeps it out of the file.
// JupyterLab and Notebook 7 alone let a view know of the notebook that it is in; elsewhere nothing happens.

const VIEW = "application/vnd.jupyter.widget-view+json";
const ENDS = ["dead", "terminating", "restarting", "autorestarting"];

/**
 * @typedef {{get(key: string): any, set(key: string, value: object): void}} SharedOutput
 * @typedef {{sharedModel?: {youtputs?: Iterable<SharedOutput>}}} Cell
 * @typedef {{connect(slot: (from: any, word: string) => void): void, disconnect(slot: (from: any, word: string) => void): void}} Signal
 * @typedef {{context?: {model?: {cells?: Iterable<Cell>}, sessionContext?: {statusChanged?: Signal}}}} Manager
 */

/**
 * Take a view out of what is saved, not out of the page: its other representations stay.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
export function unsave(manager, id) {
  inPlace(manager, id, ({ [VIEW]: _, ...rest }) => rest);
}

/**
 * Change what is saved of a view.
 * @param {Manager | undefined} manager
 * @param {string} id
 * @param {(data: Object<string, any>) => Object<string, any>} change
 */
function inPlace(manager, id, change) {
  for (const cell of manager?.context?.model?.cells ?? []) {
    for (const output of cell.sharedModel?.youtputs ?? []) {
      const data = typeof output.get === "function" ? output.get("data") : null;
      if (data?.[VIEW]?.model_id === id) output.set("data", change(data));
    }
  }
}

/**
 * Put what stays of a view where it was saved: a page that was loaded again is told of the end by nobody else.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 * @param {Object<string, string>} still its representations
 */
export function saveStill(manager, id, still) {
  inPlace(manager, id, () => still);
}

/**
 * Hear of the end of the kernel.
 * @param {Manager | undefined} manager
 * @param {() => void} ended
 * @returns {() => void} stop listening
 */
export function onKernelEnd(manager, ended) {
  const status = manager?.context?.sessionContext?.statusChanged;
  const hear = (/** @type {any} */ _, /** @type {string} */ word) => {
    if (ENDS.includes(word)) ended();
  };
  status?.connect(hear);
  return () => status?.disconnect(hear);
}
