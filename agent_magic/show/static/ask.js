// built from widgets/src by widgets/build.py: change it there
// Elements, attributes and texts. No string becomes markup of the page.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @returns {SVGElement}
 */
function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} [children] strings become text
 * @returns {HTMLElement}
 */
function html(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/**
 * @param {Element | null | undefined} element
 * @param {string} text
 */
function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * @param {Element | null | undefined} element
 * @param {string} key
 * @param {string} value
 */
function set(element, key, value) {
  if (element && element.getAttribute(key) !== value) element.setAttribute(key, value);
}

/**
 * Replace the state class of an element.
 * @param {Element} element
 * @param {string} state
 */
function setState(element, state) {
  for (const name of [...element.classList]) if (name.startsWith("s-")) element.classList.remove(name);
  element.classList.add(`s-${state}`);
}

/**
 * The icon of a state.
 * @param {string} outline
 * @param {string} state
 */
function icon(outline, state) {
  const made = svg("svg", { class: `am-icon s-${state}`, viewBox: "0 0 12 12", width: "12", height: "12", "aria-hidden": "true" });
  made.append(svg("path", { class: "i", d: outline }));
  return made;
}

/**
 * @param {string} label
 * @param {() => void} press
 */
function button(label, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "am-button";
  made.textContent = label;
  made.addEventListener("click", press);
  return made;
}

const MARKS = new Set("P EM STRONG CODE PRE UL OL LI BLOCKQUOTE HR BR S TABLE THEAD TBODY TR TH TD A".split(" "));

/**
 * Rendered Markdown as elements of the page: those of a fixed list, made anew without attributes, links to the web and
 * to mail, and text. The source is parsed in a document of its own, where nothing runs and nothing is loaded.
 * @param {string} source
 */
function marked(source) {
  const made = html("div", { class: "am-marked", tabindex: "0", role: "group", "aria-label": "answer" });
  clone(new DOMParser().parseFromString(source, "text/html").body, made);
  return made;
}

/**
 * @param {Node} from
 * @param {HTMLElement} to
 */
function clone(from, to) {
  for (const child of from.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) to.append(child.textContent ?? "");
    else if (child instanceof Element) clone(child, placeFor(child, to));
  }
}

/**
 * @param {Element} element
 * @param {HTMLElement} to
 */
function placeFor(element, to) {
  const name = /^H[1-6]$/.test(element.tagName) ? "STRONG" : element.tagName; // headings of an answer are none of the page
  if (!MARKS.has(name)) return to;
  const made = html(name.toLowerCase());
  const target = name === "A" ? element.getAttribute("href") ?? "" : "";
  if (/^(https?:|mailto:)/i.test(target)) {
    for (const [key, value] of Object.entries({ href: target, title: target, rel: "noopener noreferrer nofollow", target: "_blank" })) made.setAttribute(key, value);
  }
  if (name !== element.tagName) made.className = "am-heading";
  to.append(made);
  return made;
}

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
function unsave(manager, id) {
  for (const [output, { [VIEW]: _, ...rest }] of outputsOf(manager, id)) output.set("data", rest);
}

/**
 * Whether this page can write into the saved output of a view.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
function keeps(manager, id) {
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
function saveStill(manager, id, still) {
  for (const [output] of outputsOf(manager, id)) output.set("data", still);
}

/**
 * What a view can do with its notebook: write its saved output, and put a cell below its own. `null` where it cannot.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
function homeOf(manager, id) {
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
function onKernelEnd(manager, ended) {
  const status = manager?.context?.sessionContext?.statusChanged;
  const hear = (/** @type {any} */ _, /** @type {string} */ word) => {
    if (ENDS.includes(word)) ended();
  };
  status?.connect(hear);
  return () => status?.disconnect(hear);
}

// The panel of `run.explore()`: controls that ask the kernel for a forecast, its numbers and its picture.
// What a notebook saves of it is the picture that was shown last.


/**
 * @typedef {{title: string, concurrency: number, most: number, schedule: string, schedules: string[], recorded: string,
 *   limits: string[], caches: string[], agents: string[], models: string[], batch: boolean, goals: {under: number, least: number} | null}} Setup
 * @typedef {{seq: number, words: string, facts: [string, string, string][], line: string, picture: string, goal: string,
 *   cell: string, error: string, still: Object<string, string>}} Shown
 * @typedef {{setup: Setup, shown: Shown, choice: {seq?: number}, top: string}} State
 * @typedef {{get<K extends keyof State>(key: K): State[K], set(key: string, value: object): void, save_changes(): void,
 *   on(event: string, callback: () => void): void, off(event: string, callback: () => void): void,
 *   widget_manager?: Manager}} Model
 */

const ALL = "all agents";

/**
 * @param {string} name
 * @param {HTMLElement} input
 * @param {HTMLElement[]} more beside the name
 */
function control(name, input, ...more) {
  return html("label", { class: "am-control" }, [html("span", { class: "am-name" }, [name, ...more]), input]);
}

/**
 * @param {string[]} options
 * @param {string} value
 * @param {() => void} changed
 */
function choices(options, value, changed) {
  const made = document.createElement("select");
  made.append(...options.map((one) => new Option(one, one, one === value, one === value)));
  made.addEventListener("change", changed);
  return made;
}

/**
 * @param {Record<string, string>} attributes
 * @param {() => void} changed
 */
function input(attributes, changed) {
  const made = document.createElement("input");
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.addEventListener("input", changed);
  return made;
}

/**
 * Ask for one forecast at a time: what is changed meanwhile is asked for when the answer is there.
 * @param {Model} model
 * @param {() => object} choice
 */
function asker(model, choice) {
  let late = false;
  const ask = () => {
    const asked = model.get("choice").seq ?? 0;
    late = model.get("shown").seq !== asked;
    if (late) return;
    model.set("choice", { ...choice(), seq: asked + 1 });
    model.save_changes();
  };
  const answered = () => {
    if (late) ask();
  };
  return { ask, answered };
}

/** @param {{model: Model, el: HTMLElement}} view */
function render({ model, el }) {
  const setup = model.get("setup");
  const home = homeOf(model.widget_manager, model.get("top"));
  /** @type {Record<string, string>} */
  const models = {};

  const slots = html("b", {}, [String(setup.concurrency)]);
  const concurrency = input({ type: "range", min: "1", max: String(setup.most), value: String(setup.concurrency) }, () => {
    setText(slots, concurrency.value);
    ask();
  });
  const schedule = choices(setup.schedules, setup.schedule, () => ask());
  const limits = choices(setup.limits, setup.recorded, () => ask());
  const agent = choices([ALL, ...setup.agents], ALL, () => {
    kind.value = models[agent.selectedIndex ? agent.value : setup.agents[0] ?? ""] ?? setup.recorded;
  });
  const kind = choices([setup.recorded, ...setup.models], setup.recorded, () => {
    for (const name of agent.selectedIndex ? [agent.value] : setup.agents) {
      if (kind.value === setup.recorded) delete models[name];
      else models[name] = kind.value;
    }
    ask();
  });
  set(agent, "aria-label", "agent");
  set(kind, "aria-label", "model");
  const cache = choices([setup.recorded, ...setup.caches], setup.recorded, () => ask());
  const batch = input({ type: "checkbox" }, () => ask());
  batch.checked = setup.batch;
  const under = input({ type: "number", min: "0", step: "any", value: String(setup.goals?.under ?? 0) }, () => ask());
  const least = input({ type: "number", min: "0", max: "1", step: "0.01", value: String(setup.goals?.least ?? 0) }, () => ask());

  const { ask, answered } = asker(model, () => ({
    ...(Number(concurrency.value) === setup.concurrency ? {} : { concurrency: Number(concurrency.value) }),
    ...(schedule.value === setup.schedule ? {} : { schedule: schedule.value }),
    ...(cache.value === setup.recorded ? {} : { cache: cache.value }),
    ...(batch.checked === setup.batch ? {} : { batch: batch.checked }),
    ...(setup.goals ? { under: Number(under.value), least: Number(least.value) } : {}),
    models: { ...models },
    limits: limits.value,
  }));

  const words = html("span", { class: "am-words" });
  const write = button("Write as a cell", () => {
    home?.put(model.get("shown").cell);
  });
  write.title = "Put a cell below that applies these settings to what is declared";
  const numbers = html("div", { class: "am-numbers am-explore-line", role: "status", "aria-live": "polite" });
  const goal = html("span", { class: "am-goal" });
  const goals = html("div", { class: "am-goals" }, [
    html("label", {}, ["most dollars ", under]), html("label", {}, ["least score ", least]), goal,
  ]);
  goals.hidden = !setup.goals;
  const error = html("div", { class: "am-error", role: "alert" });
  const picture = document.createElement("img");
  const controls = html("div", { class: "am-controls" }, [
    control("concurrency", concurrency, slots),
    control("schedule", schedule),
    control("requests per minute", limits),
    control("cache", cache),
    html("div", { class: "am-control am-wide", role: "group", "aria-label": "models" }, [
      html("span", { class: "am-name" }, ["model of"]), html("div", {}, [agent, kind]),
    ]),
    html("label", { class: "am-control am-tick" }, [batch, "by batch (half price)"]),
  ]);
  const panel = html("section", { class: "am-live am-explore", "aria-label": "What if", "data-lm-suppress-shortcuts": "true" }, [
    html("header", {}, [html("h3", {}, [setup.title]), words, ...(home ? [write] : [])]), controls, numbers, goals, error, picture,
  ]);

  const show = () => {
    const shown = model.get("shown");
    setText(words, `what if: ${shown.words}`);
    numbers.replaceChildren(html("span", {}, ["forecast"]), ...shown.facts.map(([label, value, note]) => html("span", {}, [`${label} `, html("b", {}, [value]), ` ${note}`])));
    setText(goal, shown.goal);
    setText(error, shown.error);
    error.hidden = !shown.error;
    write.disabled = !shown.cell;
    const drawn = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(shown.picture)}`;
    if (picture.src !== drawn) picture.src = drawn;
    set(picture, "alt", shown.line);
    home?.save(shown.still);
    answered();
  };
  model.on("change:shown", show);
  const deaf = onKernelEnd(model.widget_manager, () => {
    for (const one of [concurrency, schedule, limits, agent, kind, cache, batch, under, least, write]) one.disabled = true;
    setText(words, "The kernel has ended: run this cell again to ask more.");
  });
  panel.addEventListener("keydown", (event) => event.stopPropagation()); // the notebook has its own arrows
  el.append(panel);
  show();
  return () => {
    model.off("change:shown", show);
    deaf();
  };
}


// The button of a shared page: it loads Python into the page, and shows the panel of `run.explore()`, which that answers.
// The page holds the run and the modules that forecast; what is loaded is Pyodide's core, and nothing is sent.


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
      const answer = python.pyimport("agent_magic.show.ask.answering").answering(data.run);
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
    /** @param {string} _ @param {() => void} listener */
    on: (_, listener) => {
      listeners.add(listener);
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
