// The live view. The kernel draws the picture once; here only what changes is changed, once per frame.
// Text of agents and models is set as text, never as markup.

import { button, Panel, set, setText, svg } from "./dom.js";
import { barBox, cellPaths, changedPlaces, nextFocus, short, spoken } from "./pure.js";

/**
 * @typedef {import("./pure.js").Delta} Delta
 * @typedef {import("./pure.js").Bar} Bar
 * @typedef {import("./pure.js").Axis} Axis
 * @typedef {import("./pure.js").Card} Card
 * @typedef {import("./pure.js").Head} Head
 * @typedef {import("./pure.js").Plot} Plot
 * @typedef {import("./pure.js").Cells} Cells
 * @typedef {{icons: Record<string, string>, names: string[], edges: [number, number][], plot?: Plot, cells?: Cells}} Fixed
 * @typedef {import("./dom.js").Detail} Detail
 * @typedef {{svg: string, states: string, full: Delta, fixed: Fixed}} State
 * @typedef {{get<K extends keyof State>(key: K): State[K], send(content: object): void,
 *   on(event: string, callback: (content: any) => void): void,
 *   off(event: string, callback: (content: any) => void): void}} Model
 */

/** The cards of agents, their edges and the path through them. */
class Cards {
  /**
   * @param {Element} root
   * @param {Fixed} fixed
   */
  constructor(root, fixed) {
    this.fixed = fixed;
    this.nodes = [...root.querySelectorAll(".n")];
    this.edges = [...root.querySelectorAll(".e")];
    this.bars = this.nodes.map((node) => node.querySelector(".g"));
    this.rooms = this.nodes.map((node) => Number(node.querySelector(".c")?.getAttribute("width")) - 24);
    this.nodes.forEach((node, agent) => {
      set(node, "role", "button");
      set(node, "tabindex", agent ? "-1" : "0");
      set(node, "data-agent", String(agent));
    });
  }

  /**
   * @param {number} agent
   * @param {string} state
   */
  state(agent, state) {
    const node = this.nodes[agent];
    if (!node) return;
    for (const name of [...node.classList]) if (name.startsWith("s-")) node.classList.remove(name);
    node.classList.add(`s-${state}`);
    set(node.querySelector(".i"), "d", this.fixed.icons[state] ?? "");
  }

  /**
   * @param {number} agent
   * @param {Card} card
   */
  card(agent, [line, tail, share, badge, hint]) {
    const node = this.nodes[agent];
    if (!node) return;
    setText(node.querySelector(".l"), line);
    setText(node.querySelector(".w"), tail);
    setText(node.querySelector(".x"), badge);
    setText(node.querySelector("title"), hint);
    set(node, "aria-label", hint);
    const bar = this.bars[agent];
    bar?.classList.toggle("go", share === null);
    set(bar, "width", short((this.rooms[agent] ?? 0) * (share ?? 1)));
  }

  /** @param {number[]} path */
  path(path) {
    const on = new Set(path);
    const steps = new Set(path.slice(1).map((agent, place) => `${path[place]} ${agent}`));
    this.nodes.forEach((node, agent) => node.classList.toggle("on", on.has(agent)));
    this.fixed.edges.forEach(([parent, child], place) =>
      this.edges[place]?.classList.toggle("on", steps.has(`${parent} ${child}`)),
    );
  }
}

/** The bars under the graph. */
class Times {
  /**
   * @param {Element} root
   * @param {Plot} plot
   */
  constructor(root, plot) {
    this.plot = plot;
    this.ticks = root.querySelector(".ticks");
    this.bars = root.querySelector(".bars");
    this.line = svg("path", { class: "now" });
    this.bars?.after(this.line);
    /** @type {Axis} */
    this.axis = { span: 1, ticks: [] };
    this.now = 0;
    /** @type {Map<number, {bar: Bar, element: SVGElement}[]>} */
    this.rows = new Map();
  }

  /** @param {Axis} axis */
  scale(axis) {
    this.axis = axis;
    this.ticks?.replaceChildren(
      ...axis.ticks.flatMap(([time, label]) => {
        const x = short(this.at(time));
        const text = svg("text", { x, y: short(this.plot.y - 12), "text-anchor": "middle" });
        text.textContent = label;
        return [svg("path", { class: "grid", d: `M${x} ${short(this.plot.y - 5)}V${short(this.plot.bottom)}` }), text];
      }),
    );
    for (const [row, bars] of this.rows) for (const one of bars) this.place(one.element, one.bar, row);
  }

  /**
   * @param {number} row
   * @param {Bar[]} bars
   */
  row(row, bars) {
    for (const { element } of this.rows.get(row) ?? []) element.remove();
    const made = bars.map((bar) => {
      const element = svg(bar[0] === "b" ? "path" : "rect", { class: `b b-${bar[0]} s-${bar[1]}` });
      this.place(element, bar, row);
      return { bar, element };
    });
    this.rows.set(row, made);
    this.bars?.append(...made.map((one) => one.element));
  }

  /** @param {number | null} now */
  tick(now) {
    this.line.style.display = now === null ? "none" : "";
    if (now === null) return;
    this.now = now;
    set(this.line, "d", `M${short(this.at(now))} ${short(this.plot.y - 5)}V${short(this.plot.bottom)}`);
    for (const [row, bars] of this.rows) {
      for (const { bar, element } of bars) if (bar[3] === null) this.place(element, bar, row);
    }
  }

  /** @param {number} time */
  at(time) {
    return this.plot.x + (time / this.axis.span) * this.plot.w;
  }

  /**
   * @param {SVGElement} element
   * @param {Bar} bar
   * @param {number} row
   */
  place(element, bar, row) {
    const box = barBox(bar, row, this.plot, this.axis.span, this.now);
    if (bar[0] === "b") {
      set(element, "d", `M${short(box.x)} ${short(box.middle)}H${short(box.x + box.width)}`);
      return;
    }
    const { x, y, width, height, radius } = box;
    for (const [key, value] of Object.entries({ x, y, width, height, rx: radius })) set(element, key, short(value));
  }
}

/** Hundreds of agents and more, a cell each. */
class CellBands {
  /**
   * @param {Element} root
   * @param {Cells} cells
   */
  constructor(root, cells) {
    this.cells = cells;
    this.groups = [...root.querySelectorAll(".cells")];
    this.tallies = [...root.querySelectorAll(".tally")];
    /** @type {number[]} */
    this.bandOf = [];
    cells.bands.forEach((band, place) => band.agents.forEach((agent) => (this.bandOf[agent] = place)));
  }

  /**
   * @param {string} states
   * @param {number[]} changed
   */
  states(states, changed) {
    for (const place of new Set(changed.map((agent) => this.bandOf[agent]))) {
      if (place !== undefined) this.band(place, states);
    }
  }

  /**
   * @param {number} place
   * @param {string} states
   */
  band(place, states) {
    const { cells } = this;
    const band = cells.bands[place];
    if (!band) return;
    const inside = band.agents.map((agent) => states[agent]).join("");
    const look = { "stroke-width": short(cells.size), "stroke-dasharray": `${short(cells.size)} ${short(cells.pitch - cells.size)}` };
    const paths = Object.entries(cellPaths(inside, cells, band.y));
    this.groups[place]?.replaceChildren(...paths.map(([state, d]) => svg("path", { class: `z s-${state}`, d, ...look })));
  }

  /**
   * @param {number} place
   * @param {string[]} lines
   */
  tally(place, lines) {
    lines.forEach((line, number) => setText(this.tallies[place * 2 + number], line));
  }
}

/**
 * @param {Element} root
 * @param {Head} head
 */
function setHead(root, head) {
  setText(root.querySelector(".counts"), head.counts);
  root.querySelectorAll(".p").forEach((part, place) => {
    const [x, width] = head.progress[place] ?? [0, 0];
    set(part, "x", short(x));
    set(part, "width", short(width));
  });
  const facts = root.querySelector(".facts");
  if (!facts) return;
  if (facts.childElementCount !== head.facts.length) {
    facts.replaceChildren(...head.facts.map(() => svg("tspan", {})));
  }
  [...facts.children].forEach((run, place) => {
    const [look, text] = head.facts[place] ?? ["", ""];
    set(run, "class", look);
    setText(run, text);
  });
}

/**
 * Open the panel by mouse and keyboard; arrow keys go from agent to agent.
 * @param {Element} figure
 * @param {Cards} cards
 * @param {(agent: number) => void} open
 */
function listen(figure, cards, open) {
  const agentAt = (/** @type {EventTarget | null} */ target) => {
    const node = target instanceof Element ? target.closest(".n") : null;
    return node ? Number(node.getAttribute("data-agent")) : -1;
  };
  figure.addEventListener("click", (event) => {
    const agent = agentAt(event.target);
    if (agent >= 0) open(agent);
  });
  figure.addEventListener("keydown", (event) => {
    const agent = agentAt(event.target);
    if (agent < 0 || !(event instanceof KeyboardEvent)) return;
    const next = nextFocus(event.key, agent, cards.nodes.length);
    if (event.key === "Enter" || event.key === " ") open(agent);
    else if (next === agent) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has its own keys
    const to = cards.nodes[next];
    set(cards.nodes[agent], "tabindex", "-1");
    set(to, "tabindex", "0");
    if (to instanceof SVGElement) to.focus();
  });
}

/**
 * Bring what the kernel said onto the page, once per frame.
 * @param {Model} model
 * @param {Element} figure
 * @param {Element} status
 */
function painter(model, figure, status) {
  const fixed = model.get("fixed");
  const cards = new Cards(figure, fixed);
  const times = fixed.plot ? new Times(figure, fixed.plot) : null;
  const cells = fixed.cells ? new CellBands(figure, fixed.cells) : null;
  /** @type {Delta[]} */
  let waiting = [];
  let shown = "";
  let asked = 0;

  const paint = () => {
    asked = 0;
    const states = model.get("states");
    const changed = changedPlaces(shown, states);
    for (const agent of changed) cards.state(agent, states[agent] ?? "p");
    cells?.states(states, changed);
    if (changed.length) setText(status, spoken(states));
    shown = states;
    for (const delta of waiting) apply(delta);
    waiting = [];
  };
  const apply = (/** @type {Delta} */ delta) => {
    if (delta.head) setHead(figure, delta.head);
    for (const [agent, card] of Object.entries(delta.nodes ?? {})) cards.card(Number(agent), card);
    if (delta.path) cards.path(delta.path);
    if (delta.axis) times?.scale(delta.axis);
    for (const [row, bars] of Object.entries(delta.bars ?? {})) times?.row(Number(row), bars);
    if (delta.now !== undefined) times?.tick(delta.now);
    for (const [place, lines] of Object.entries(delta.tally ?? {})) cells?.tally(Number(place), lines);
  };
  const ask = (/** @type {Delta | null} */ delta) => {
    if (delta) waiting.push(delta);
    if (!asked) asked = requestAnimationFrame(paint);
  };
  return { cards, ask, stop: () => cancelAnimationFrame(asked) };
}

/** @param {{model: Model, el: HTMLElement}} view */
function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "am-live";
  const parsed = new DOMParser().parseFromString(model.get("svg"), "image/svg+xml").documentElement;
  const figure = document.importNode(parsed, true);
  // A deep plan is scrolled rather than shrunk until nobody can read it.
  figure.style.minWidth = `${0.6 * Number(figure.getAttribute("viewBox")?.split(" ")[2] ?? 0)}px`;
  const scroll = document.createElement("div");
  scroll.className = "am-scroll";
  scroll.append(figure);
  const status = document.createElement("span");
  status.className = "am-status";
  status.setAttribute("role", "status");
  const stop = button("Stop", () => {
    model.send({ cmd: "stop" });
    stop.disabled = true;
    stop.textContent = "Stopping…";
  });
  stop.classList.add("am-stop");
  stop.setAttribute("aria-label", "Stop all agents");
  const panel = new Panel();
  root.append(scroll, stop, status, panel.element);
  el.append(root);

  const { cards, ask, stop: quiet } = painter(model, figure, status);
  listen(figure, cards, (agent) => {
    panel.open(agent, model.get("fixed").names[agent] ?? "");
    model.send({ cmd: "detail", agent });
  });
  const onStates = () => ask(null);
  const onFull = () => ask(model.get("full"));
  const onMessage = (/** @type {{delta?: Delta, detail?: Detail}} */ content) => {
    if (content.delta) ask(content.delta);
    if (content.detail) panel.show(content.detail);
  };
  model.on("change:states", onStates);
  model.on("change:full", onFull);
  model.on("msg:custom", onMessage);
  onFull();
  return () => {
    quiet();
    model.off("change:states", onStates);
    model.off("change:full", onFull);
    model.off("msg:custom", onMessage);
  };
}

export default { render };
