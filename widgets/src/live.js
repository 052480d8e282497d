// The live view. The kernel draws the picture once; the page applies changes, once per frame.
// Texts of agents and models are set as text, never as markup.

import { Asking } from "./asking.js";
import { Cards, Times } from "./cards.js";
import { html, set, setText } from "./dom.js";
import { Drawer, Rings } from "./groups.js";
import { Header, legendOf } from "./header.js";
import { keeps, onKernelEnd, saveStill, unsave } from "./keep.js";
import { Panel } from "./panel.js";
import { changedPlaces, nextFocus, spoken } from "./pure.js";

/**
 * @typedef {import("./pure.js").Delta} Delta
 * @typedef {import("./cards.js").Fixed} Fixed
 * @typedef {import("./panel.js").Detail} Detail
 * @typedef {import("./panel.js").Edit} Edit
 * @typedef {{svg: string, states: string, full: Delta, fixed: Fixed, top: string, still: Object<string, string>,
 *   questions: import("./asking.js").Question[]}} State
 * @typedef {{get<K extends keyof State>(key: K): State[K], send(content: object): void,
 *   on(event: string, callback: (content: any) => void): void,
 *   off(event: string, callback: (content: any) => void): void,
 *   widget_manager?: import("./keep.js").Manager}} Model
 */

const SPEAK_EVERY_MS = 4000;
const ASK_EVERY_MS = 1000;
/** A picture that is a little wider than its page shrinks; below this it scrolls, since its texts would be too small. */
const LEAST_SCALE = 0.9;
const LOOK_EVERY_MS = 100;
const LOOKS = 50;

/**
 * Open nodes by mouse and keyboard; arrow keys move between them.
 * @param {Element} figure
 * @param {Element[]} nodes
 * @param {(place: number, node: Element) => void} open
 */
function listen(figure, nodes, open) {
  nodes.forEach((node, place) => {
    set(node, "role", "button");
    set(node, "tabindex", place ? "-1" : "0");
    set(node, "data-agent", String(place));
    set(node, "aria-label", node.querySelector("title")?.textContent ?? "");
  });
  const placeOf = (/** @type {EventTarget | null} */ target) => {
    const node = target instanceof Element ? target.closest(".n") : null;
    return node ? Number(node.getAttribute("data-agent")) : -1;
  };
  const go = (/** @type {number} */ from, /** @type {number} */ to) => {
    nodes.forEach((node) => node.getAttribute("tabindex") === "0" && set(node, "tabindex", "-1"));
    const next = nodes[to];
    set(next, "tabindex", "0");
    if (next instanceof SVGElement && from !== to) next.focus();
  };
  figure.addEventListener("click", (event) => {
    const place = placeOf(event.target);
    const node = nodes[place];
    if (!node) return;
    go(place, place);
    open(place, node);
  });
  figure.addEventListener("keydown", (event) => {
    const place = placeOf(event.target);
    const node = nodes[place];
    if (!node || !(event instanceof KeyboardEvent)) return;
    const next = nextFocus(event.key, place, nodes.length);
    if (event.key === "Enter" || event.key === " ") open(place, node);
    else if (next === place) return;
    else go(place, next);
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own keys
  });
}

/**
 * Announce the progress to screen readers, now and then.
 * @param {Element} status
 */
function speaker(status) {
  let last = 0;
  return (/** @type {string} */ states) => {
    const now = performance.now();
    if (last && now - last < SPEAK_EVERY_MS) return;
    last = now;
    setText(status, spoken(states));
  };
}

/**
 * Apply the messages of the kernel, once per frame.
 * @param {Model} model
 * @param {{cards: Cards | null, times: Times | null, rings: Rings | null, drawer: Drawer | null, header: Header,
 *   status: Element}} parts
 * @param {(changed: number[]) => void} onChange
 */
function painter(model, { cards, times, rings, drawer, header, status }, onChange) {
  const speak = speaker(status);
  /** @type {Delta[]} */
  let waiting = [];
  let shown = "";
  let asked = 0;

  const paint = () => {
    asked = 0;
    const states = model.get("states");
    const changed = changedPlaces(shown, states);
    shown = states;
    if (cards) for (const agent of changed) cards.state(agent, states[agent] ?? "p");
    drawer?.show(states);
    for (const delta of waiting) apply(delta);
    waiting = [];
    if (changed.length) speak(states);
    onChange(changed);
  };
  const apply = (/** @type {Delta} */ delta) => {
    if (delta.now !== undefined) for (const one of [header, cards]) one?.tick(delta.now);
    if (delta.head) header.show(delta.head);
    if (delta.strip !== undefined) header.vitals(delta.strip);
    if (delta.alerts) header.alarm(delta.alerts);
    for (const [agent, card] of Object.entries(delta.nodes ?? {})) cards?.card(Number(agent), card);
    for (const [agent, flow] of Object.entries(delta.flows ?? {})) cards?.flow(Number(agent), flow);
    for (const [group, tally] of Object.entries(delta.groups ?? {})) rings?.tally(Number(group), tally);
    if (delta.path) cards?.path(delta.path);
    if (delta.axis) times?.scale(delta.axis);
    for (const [row, bars] of Object.entries(delta.bars ?? {})) times?.row(Number(row), bars);
    if (delta.now !== undefined) times?.tick(delta.now);
  };
  const ask = (/** @type {Delta | null} */ delta) => {
    if (delta) waiting.push(delta);
    if (!asked) asked = requestAnimationFrame(paint);
  };
  return { ask, quiet: () => cancelAnimationFrame(asked) };
}

/**
 * The picture that the kernel drew.
 * @param {string} text
 */
function figureOf(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const figure = document.importNode(parsed, true);
  // A wide plan scrolls, because shrunk to the page its letters would be too small to read.
  figure.style.minWidth = `${LEAST_SCALE * Number(figure.getAttribute("viewBox")?.split(" ")[2] ?? 0)}px`;
  return figure;
}

/**
 * Tell the kernel what it needs for the static picture, now and when it changes: the theme of the page, and whether the
 * page can save the picture itself. The notebook knows the output of a view a moment after it is drawn.
 * @param {Model} model
 * @param {() => boolean} kept
 * @returns {() => void} stop sending
 */
function tellPage(model, kept) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const tell = () => {
    const words = `${document.body.dataset.jpThemeLight ?? ""} ${document.body.className}`;
    const dark = /^false|vscode-(dark|high-contrast)\b/.test(words) || (/^true|vscode-light/.test(words) ? false : system.matches);
    model.send({ cmd: "page", dark, system: system.matches, keeps: kept() });
  };
  let tries = LOOKS;
  const looking = setInterval(() => {
    if (kept()) tell();
    if (kept() || !--tries) clearInterval(looking);
  }, LOOK_EVERY_MS);
  const watch = new MutationObserver(tell);
  watch.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
  tell();
  return () => {
    clearInterval(looking);
    watch.disconnect();
  };
}

/**
 * Show the static picture.
 * @param {Model} model
 * @param {HTMLElement} el
 */
function settle(model, el) {
  el.replaceChildren(figureOf(model.get("still")["image/svg+xml"] ?? ""));
}

/** @param {{model: Model, el: HTMLElement}} view */
function render({ model, el }) {
  const kept = () => keeps(model.widget_manager, model.get("top"));
  const isOver = () => Boolean(model.get("still")["image/svg+xml"]);
  if (isOver() && !kept()) return settle(model, el); // the page was reloaded after the end
  const fixed = model.get("fixed");
  const figure = figureOf(model.get("svg"));
  const status = html("span", { class: "am-status", role: "status" });
  const header = new Header(fixed.title, fixed.verbs, (verb) => model.send({ cmd: verb }), legendOf(fixed));
  const root = html("div", { class: "am-live", role: "group", "aria-label": `Run of ${fixed.title}`, "data-lm-suppress-shortcuts": "true" });
  const asking = new Asking((number, way, text) => model.send({ cmd: "answer", number, way, text }));
  const panel = new Panel(root, fixed, (verb, agent, text) => model.send({ cmd: verb, agent, ...(text === undefined ? {} : { text }) }));
  const open = (/** @type {number} */ agent, /** @type {Element} */ anchor) => {
    panel.open(agent, fixed.names[agent] ?? "", anchor);
    model.send({ cmd: "detail", agent });
  };
  const drawer = fixed.groups ? new Drawer(fixed, open) : null;
  const rings = fixed.groups ? new Rings(figure, fixed) : null;
  const cards = fixed.groups ? null : new Cards(figure, fixed);
  const times = fixed.plot ? new Times(figure, fixed.plot, fixed) : null;
  root.append(header.element, asking.element, asking.spoken, html("div", { class: "am-scroll" }, [figure]), ...(drawer ? [drawer.element] : []), status, panel.element);
  el.append(root);
  if (rings) {
    listen(figure, rings.nodes, (group, node) => {
      const agent = rings.alone[group] ?? -1;
      if (agent >= 0) open(agent, node);
      else drawer?.open(group, node, model.get("states"));
    });
  }
  if (cards) listen(figure, cards.nodes, open);
  const nodes = (cards ?? rings)?.nodes ?? [];
  times?.listen(
    (place) => nodes.forEach((node, one) => node.classList.toggle("am-pointed", one === place)),
    (place) => nodes[place]?.dispatchEvent(new MouseEvent("click", { bubbles: true })),
  );

  const ask = () => panel.isOpen && model.send({ cmd: "detail", agent: panel.agent });
  const paint = painter(model, { cards, times, rings, drawer, header, status }, (changed) => {
    if (changed.includes(panel.agent)) ask();
  });
  const timer = setInterval(() => model.get("states")[panel.agent] === "r" && ask(), ASK_EVERY_MS);
  const onStates = () => paint.ask(null);
  const onFull = () => paint.ask(model.get("full"));
  const onQuestions = () => asking.show(model.get("questions"));
  const onMessage = (/** @type {{delta?: Delta, detail?: Detail, edit?: Edit, fault?: {number: number, text: string}}} */ content) => {
    if (content.delta) paint.ask(content.delta);
    if (content.detail) panel.show(content.detail);
    if (content.edit) panel.edit(content.edit);
    if (content.fault) asking.refuse(content.fault);
  };
  model.on("change:states", onStates);
  model.on("change:questions", onQuestions);
  model.on("change:full", onFull);
  model.on("msg:custom", onMessage);
  const onStill = () => {
    if (!kept()) return settle(model, el);
    saveStill(model.widget_manager, model.get("top"), model.get("still"));
    header.over();
    asking.end();
    panel.end();
    root.classList.add("am-over");
    setText(status, spoken(model.get("states")));
    clearInterval(timer);
    if (panel.isOpen) ask();
  };
  model.on("change:still", onStill);
  onFull();
  onQuestions();
  if (isOver()) onStill();
  const deaf = onKernelEnd(model.widget_manager, () => {
    if (isOver()) return settle(model, el);
    unsave(model.widget_manager, model.get("top"));
    header.end();
    asking.end();
    root.classList.add("am-ended");
  });
  const quiet = tellPage(model, kept);
  return () => {
    quiet();
    deaf();
    paint.quiet();
    clearInterval(timer);
    model.off("change:states", onStates);
    model.off("change:questions", onQuestions);
    model.off("change:full", onFull);
    model.off("msg:custom", onMessage);
    model.off("change:still", onStill);
  };
}

export default { render };
