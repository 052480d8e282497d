// What a notebook saves of a view. A saved view without its kernel shows an error, so this keeps it out of the file.
// Only JupyterLab and Notebook 7 let a view see its notebook; elsewhere nothing happens.

const VIEW = "application/vnd.jupyter.widget-view+json";
const ENDS = ["dead", "terminating", "restarting", "autorestarting"];

/**
 * @typedef {{get(key: string): any, set(key: string, value: object): void}} SharedOutput
 * @typedef {{sharedModel?: {youtputs?: Iterable<SharedOutput>}}} Cell
 * @typedef {{connect(slot: (from: any, word: string) => void): void, disconnect(slot: (from: any, word: string) => void): void}} Signal
 * @typedef {{insertCell(at: number, cell: object): void}} SharedNotebook
 * @typedef {{context?: {model?: {cells?: Iterable<Cell>, sharedModel?: SharedNotebook}, sessionContext?: {statusChanged?: Signal}}}} Manager
 */

/**
 * Remove a view from the saved output, not from the page; its other representations stay.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
export function unsave(manager, id) {
  for (const [output, { [VIEW]: _, ...rest }] of outputsOf(manager, id)) output.set("data", rest);
}

/**
 * Whether this page can write into the saved output of a view.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
export function keeps(manager, id) {
  return outputsOf(manager, id).length > 0;
}

/**
 * The saved outputs of a view, and their representations.
 * @param {Manager | undefined} manager
 * @param {string} id
 * @returns {[SharedOutput, Record<string, any>][]}
 */
function outputsOf(manager, id) {
  const cells = [...(manager?.context?.model?.cells ?? [])];
  const outputs = cells.flatMap((cell) => [...(cell.sharedModel?.youtputs ?? [])]);
  return outputs.filter((one) => typeof one.get === "function" && one.get("data")?.[VIEW]?.model_id === id).map((one) => [one, one.get("data")]);
}

/**
 * Save the static picture in the output of a view. The view stays in the page.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 * @param {Object<string, string>} still its representations
 */
export function saveStill(manager, id, still) {
  for (const [output] of outputsOf(manager, id)) output.set("data", still);
}

/**
 * What a view can do with its notebook: write its saved output, and put a cell below its own. `null` where it cannot.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
export function homeOf(manager, id) {
  const model = manager?.context?.model;
  const saved = outputsOf(manager, id);
  const mine = (/** @type {SharedOutput} */ one) => saved.some(([output]) => output === one);
  const cell = [...(model?.cells ?? [])].find((one) => [...(one.sharedModel?.youtputs ?? [])].some(mine));
  if (!cell) return null;
  return {
    /** @param {Object<string, string>} still */
    save: (still) => saved.forEach(([output]) => output.set("data", still)),
    /** @param {string} source */
    put: (source) => {
      const at = [...(model?.cells ?? [])].indexOf(cell) + 1;
      model?.sharedModel?.insertCell(at, { cell_type: "code", source });
    },
  };
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
