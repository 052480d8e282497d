// The panel of `run.explore()`: controls that ask the kernel for a forecast, its numbers and its picture.
// What a notebook saves of it is the picture that was shown last.

import { button, html, set, setText } from "./dom.js";
import { homeOf, onKernelEnd } from "./keep.js";

/**
 * @typedef {{title: string, concurrency: number, most: number, schedule: string, schedules: string[], unchanged: string,
 *   limits: string[], caches: string[], agents: string[], models: string[], batch: boolean, goals: {under: number, least: number} | null}} Setup
 * @typedef {{seq: number, words: string, facts: [string, string, string][], line: string, picture: string, goal: string,
 *   cell: string, error: string, still: Object<string, string>}} Shown
 * @typedef {{setup: Setup, shown: Shown, choice: {seq?: number, open?: boolean}, top: string}} State
 * @typedef {{get<K extends keyof State>(key: K): State[K], set(key: string, value: object): void, save_changes(): void,
 *   on(event: string, callback: () => void): void, off(event: string, callback: () => void): void,
 *   widget_manager?: import("./keep.js").Manager}} Model
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

/**
 * The controls, or the button that asks the kernel for them.
 * @param {{model: Model, el: HTMLElement}} view
 */
export function render({ model, el }) {
  const home = homeOf(model.widget_manager, model.get("top"));
  let undo = () => {};
  const build = () => {
    undo();
    el.replaceChildren();
    undo = (model.get("setup").title === undefined ? opener : controls)(model, el, home);
  };
  model.on("change:setup", build);
  build();
  return () => {
    model.off("change:setup", build);
    undo();
  };
}

/**
 * @param {Model} model
 * @param {HTMLElement} el
 * @param {ReturnType<typeof homeOf>} home
 */
function opener(model, el, home) {
  const open = button("Explore", () => {
    open.disabled = true;
    model.set("choice", { seq: 0, open: true });
    model.save_changes();
  });
  open.title = "Other concurrency, schedule, limits and models, with the forecast. Nothing is sent.";
  const error = html("div", { class: "am-error", role: "alert" });
  const show = () => {
    setText(error, model.get("shown").error);
    home?.save(model.get("shown").still);
  };
  model.on("change:shown", show);
  const deaf = onKernelEnd(model.widget_manager, () => {
    open.disabled = true;
  });
  el.append(html("section", { class: "am-live am-opens" }, [open, error]));
  show();
  return () => {
    model.off("change:shown", show);
    deaf();
  };
}

/**
 * @param {Model} model
 * @param {HTMLElement} el
 * @param {ReturnType<typeof homeOf>} home
 */
function controls(model, el, home) {
  const setup = model.get("setup");
  /** @type {Record<string, string>} */
  const models = {};

  const slots = html("b", {}, [String(setup.concurrency)]);
  const concurrency = input({ type: "range", min: "1", max: String(setup.most), value: String(setup.concurrency) }, () => {
    setText(slots, concurrency.value);
    ask();
  });
  const schedule = choices(setup.schedules, setup.schedule, () => ask());
  const limits = choices(setup.limits, setup.unchanged, () => ask());
  const agent = choices([ALL, ...setup.agents], ALL, () => {
    kind.value = models[agent.selectedIndex ? agent.value : setup.agents[0] ?? ""] ?? setup.unchanged;
  });
  const kind = choices([setup.unchanged, ...setup.models], setup.unchanged, () => {
    for (const name of agent.selectedIndex ? [agent.value] : setup.agents) {
      if (kind.value === setup.unchanged) delete models[name];
      else models[name] = kind.value;
    }
    ask();
  });
  set(agent, "aria-label", "agent");
  set(kind, "aria-label", "model");
  const cache = choices([setup.unchanged, ...setup.caches], setup.unchanged, () => ask());
  const batch = input({ type: "checkbox" }, () => ask());
  batch.checked = setup.batch;
  const under = input({ type: "number", min: "0", step: "any", value: String(setup.goals?.under ?? 0) }, () => ask());
  const least = input({ type: "number", min: "0", max: "1", step: "0.01", value: String(setup.goals?.least ?? 0) }, () => ask());

  const { ask, answered } = asker(model, () => ({
    ...(Number(concurrency.value) === setup.concurrency ? {} : { concurrency: Number(concurrency.value) }),
    ...(schedule.value === setup.schedule ? {} : { schedule: schedule.value }),
    ...(limits.value === setup.unchanged ? {} : { limits: limits.value }),
    ...(cache.value === setup.unchanged ? {} : { cache: cache.value }),
    ...(batch.checked === setup.batch ? {} : { batch: batch.checked }),
    ...(setup.goals ? { under: Number(under.value), least: Number(least.value) } : {}),
    models: { ...models },
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
  const fields = html("div", { class: "am-controls" }, [
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
    html("header", {}, [html("h3", {}, [setup.title]), words, ...(home ? [write] : [])]), fields, numbers, goals, error, picture,
  ]);

  const show = () => {
    const shown = model.get("shown");
    setText(words, `what if: ${shown.words}`);
    numbers.replaceChildren(html("span", {}, ["forecast"]), ...shown.facts.map(([label, value, note]) => html("span", {}, [`${label} `, html("b", {}, [value]), ` ${note}`])));
    setText(goal, shown.goal);
    setText(error, shown.error);
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

export default { render };
