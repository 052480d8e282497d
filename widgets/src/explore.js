// Keeps the controls of `run.explore()` out of the saved notebook, which has the picture.

import { unsave } from "./keep.js";

/** @param {{model: {get(key: string): string, widget_manager?: import("./keep.js").Manager}}} view */
function render({ model }) {
  unsave(model.widget_manager, model.get("top"));
}

export default { render };
