// Beside the controls of `run.explore()`: a saved notebook has their picture, and not the controls without a kernel.

import { unsave } from "./keep.js";

/** @param {{model: {get(key: string): string, widget_manager?: import("./keep.js").Manager}}} view */
function render({ model }) {
  unsave(model.widget_manager, model.get("top"));
}

export default { render };
