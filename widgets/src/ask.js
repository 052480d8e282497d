// The button of a shared page: it loads Python into the page, and shows the panel of `run.explore()`, which that answers.
// The page holds the run and the modules that forecast; what is loaded is Pyodide's core, and nothing is sent.

import { button, html, setText } from "./dom.js";
import { render } from "./explore.js";

/**
 * The worker: Python, the modules of the page, its run. It is written out as text, so nothing of this file is in reach.
 */
function serve() {
  self.onunhandledrejection = (event) => self.postMessage({ error: String(event.reason) }); // Pyodide waits for ever
  /** @param {MessageEvent<{python: string, engine: Uint8Array, run: string}>} first */
  self.onmessage = async ({ data }) => {
    try {
      const { loadPyodide } = await import(`${data.python}pyodide.mjs`);
      const python = await loadPyodide({ indexURL: data.python });
      self.postMessage({ step: "Opening the run …" });
      python.unpackArchive(data.engine, "xztar");
      /** @type {(asked: string) => string} */
      const answer = python.pyimport("agent_magic.show.explore").answering(data.run);
      self.onmessage = (asked) => self.postMessage({ answer: answer(asked.data) });
      self.postMessage({ answer: answer("") });
    } catch (error) {
      self.postMessage({ error: String(error) });
    }
  };
}

/**
 * What the panel takes for its widget: choices go to the worker, answers come back.
 * @param {Worker} worker
 * @param {Record<string, any>} first
 */
function modelOf(worker, first) {
  /** @type {Record<string, any>} */
  const state = { ...first, choice: {}, top: "" };
  /** @type {Set<() => void>} */
  const listeners = new Set();
  return {
    /** @param {string} answer */
    answered: (answer) => {
      state.shown = JSON.parse(answer);
      for (const listener of listeners) listener();
    },
    /** @param {string} key */
    get: (key) => state[key],
    /** @param {string} key @param {object} value */
    set: (key, value) => {
      state[key] = value;
    },
    save_changes: () => worker.postMessage(JSON.stringify(state.choice)),
    /** @param {string} event @param {() => void} listener */
    on: (event, listener) => {
      if (event === "change:shown") listeners.add(listener); // the setup of a page never changes
    },
    /** @param {string} _ @param {() => void} listener */
    off: (_, listener) => {
      listeners.delete(listener);
    },
  };
}

/** @param {string} id of base64 text in the page */
function packed(id) {
  return (document.getElementById(id)?.textContent ?? "").trim();
}

/**
 * @param {HTMLElement} place
 * @param {string} python where Pyodide is
 * @param {(text: string) => void} tell
 * @param {(why: string) => void} fail
 */
function start(place, python, tell, fail) {
  const code = new Blob([`(${serve})()`], { type: "text/javascript" });
  // A classic worker is refused by Pyodide wherever `importScripts` works: on every page whose policy does not forbid it.
  // From a file no module starts, since its origin is null; there the page is shown by itself, with its policy.
  const type = location.protocol === "file:" ? "classic" : "module";
  const worker = new Worker(URL.createObjectURL(code), { type });
  /** @type {ReturnType<typeof modelOf> | null} */
  let model = null;
  const stop = (/** @type {string} */ why) => {
    worker.terminate();
    fail(why);
  };
  worker.onerror = (event) => stop(event.message || "this browser could not start it");
  worker.onmessage = ({ data }) => {
    if (data.error) stop(data.error);
    else if (data.step) tell(data.step);
    else if (model) model.answered(data.answer);
    else {
      model = modelOf(worker, JSON.parse(data.answer));
      place.replaceChildren();
      render({ model: /** @type {any} */ (model), el: place });
      place.querySelector("input")?.focus();
    }
  };
  const engine = Uint8Array.from(atob(packed("am-engine")), (letter) => letter.charCodeAt(0));
  worker.postMessage({ python, engine, run: packed("am-run") });
}

const place = document.getElementById("am-ask");
if (place) {
  const python = new URL(place.dataset.python ?? "", document.baseURI).href;
  const about = place.textContent ?? "";
  const words = html("span", { class: "am-about", role: "status" }, [about]);
  const press = button("Ask this run", () => {
    press.disabled = true;
    setText(words, "Loading Python …");
    start(place, python, (text) => setText(words, text), (why) => {
      press.disabled = false;
      const local = python.startsWith("file:");
      const next = local
        ? "A page that was opened from a file cannot load from the folder beside it. Serve both: python -m http.server"
        : `Look whether ${python} can be reached, and press again.`;
      setText(words, `Python could not be loaded (${why.trim().split("\n").at(-1)?.slice(0, 200)}). ${next}`);
    });
  });
  place.replaceChildren(press, words);
}
