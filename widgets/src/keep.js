// What a notebook saves of a view. A saved view without its kernel shows an error, so this keeps it out of the file.
// Only JupyterLab and Notebook 7 let a view see its notebook; elsewhere nothing happens.

const VIEW = "application/vnd.jupyter.widget-view+json";
const ENDS = ["dead", "terminating", "restarting", "autorestarting"];

/**
 * @typedef {{get(key: string): any, set(key: string, value: object): void}} SharedOutput
 * @typedef {{sharedModel?: {youtputs?: Iterable<SharedOutput>}}} Cell
 * @typedef {{connect(slot: (from: any, word: string) => void): void, disconnect(slot: (from: any, word: string) => void): void}} Signal
 * @typedef {{context?: {model?: {cells?: Iterable<Cell>}, sessionContext?: {statusChanged?: Signal}}}} Manager
 */

/**
 * Remove a view from the saved output, not from the page; its other representations stay.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
export function unsave(manager, id) {
  inPlace(manager, id, ({ [VIEW]: _, ...rest }) => rest);
}

/**
 * Change the saved output of a view.
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
 * Save the static picture in the output of a view. Nothing else updates a page that was reloaded during the run.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 * @param {Object<string, string>} still its representations
 */
export function saveStill(manager, id, still) {
  inPlace(manager, id, () => still);
}

/**
 * Call `ended` when the kernel ends.
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
