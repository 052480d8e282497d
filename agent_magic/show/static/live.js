// built from widgets/src by widgets/build.py: change it there
// What the view works out without a page: tested by `node --test widgets/test`.

/**
 * @typedef {{counts: string, progress: [number, number][], facts: [string, string][]}} Head
 * @typedef {{span: number, ticks: [number, string][]}} Axis
 * @typedef {[line: string, tail: string, share: number | null, badge: string, hint: string]} Card
 * @typedef {[kind: string, tone: string, from: number, to: number | null]} Bar
 * @typedef {{nodes?: Record<string, Card>, bars?: Record<string, Bar[]>, tally?: Record<string, string[]>,
 *   path?: number[], axis?: Axis, now?: number | null, head?: Head}} Delta
 * @typedef {{x: number, y: number, w: number, row: number, bar: number, bottom: number}} Plot
 * @typedef {{y: number, agents: number[]}} Band
 * @typedef {{x: number, pitch: number, size: number, columns: number, bands: Band[]}} Cells
 */

/**
 * The places at which two strings of states differ.
 * @param {string} before
 * @param {string} after
 * @returns {number[]}
 */
function changedPlaces(before, after) {
  const places = [];
  for (let place = 0; place < after.length; place++) {
    if (after[place] !== before[place]) places.push(place);
  }
  return places;
}

/**
 * Where a bar stands. A bar without an end reaches to the present.
 * @param {Bar} bar
 * @param {number} row
 * @param {Plot} plot
 * @param {number} span
 * @param {number} now
 */
function barBox([kind, , from, to], row, plot, span, now) {
  const at = (/** @type {number} */ time) => plot.x + (time / span) * plot.w;
  const start = at(from);
  const width = Math.max(1.5, at(to ?? Math.max(from, now)) - start);
  const height = kind === "q" ? 3 : plot.bar;
  const middle = plot.y + row * plot.row + plot.bar / 2;
  return { x: start, y: middle - height / 2, width, height, middle, radius: Math.min(2.5, height / 2, width / 2) };
}

/**
 * Per state, the lines that draw the cells of a band: one dashed line for each run of neighbours.
 * @param {string} states of the agents of the band, in the order of its cells
 * @param {Cells} cells
 * @param {number} top
 * @returns {Record<string, string>}
 */
function cellPaths(states, cells, top) {
  /** @type {Record<string, string>} */
  const paths = {};
  let start = 0;
  for (let place = 1; place <= states.length; place++) {
    const goesOn = place < states.length && place % cells.columns !== 0 && states[place] === states[start];
    if (goesOn) continue;
    const x = cells.x + (start % cells.columns) * cells.pitch;
    const y = top + Math.floor(start / cells.columns) * cells.pitch + cells.size / 2;
    const length = (place - start - 1) * cells.pitch + cells.size;
    const state = /** @type {string} */ (states[start]);
    paths[state] = `${paths[state] ?? ""}M${short(x)} ${short(y)}h${short(length)}`;
    start = place;
  }
  return paths;
}

/**
 * A coordinate with at most one decimal.
 * @param {number} value
 */
function short(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

/**
 * Count what is done, for people who listen to the page.
 * @param {string} states
 */
function spoken(states) {
  let done = 0;
  let failed = 0;
  for (const state of states) {
    if ("slym".includes(state)) done++;
    if (state === "f") failed++;
  }
  return `${done} of ${states.length} agents done${failed ? `, ${failed} failed` : ""}`;
}

/**
 * The agent that has the keyboard after an arrow key.
 * @param {string} key
 * @param {number} here
 * @param {number} count
 */
function nextFocus(key, here, count) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return step === undefined ? here : Math.min(count - 1, Math.max(0, here + step));
}

// Elements, attributes and texts: nothing here makes markup of a string.

/** @typedef {{agent: number, name: string, texts: Record<string, string>}} Detail */

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

/** The panel with one agent's texts. */
class Panel {
  constructor() {
    this.element = document.createElement("section");
    this.element.className = "am-detail";
    this.element.hidden = true;
    this.agent = -1;
  }

  /**
   * @param {number} agent
   * @param {string} name
   */
  open(agent, name) {
    this.agent = agent;
    this.fill(name, {});
    this.element.hidden = false;
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** @param {Detail} detail */
  show(detail) {
    if (detail.agent !== this.agent || this.element.hidden) return;
    this.fill(detail.name, detail.texts);
    this.element.scrollIntoView({ block: "nearest" });
  }

  /**
   * @param {string} name
   * @param {Record<string, string>} texts
   */
  fill(name, texts) {
    const title = document.createElement("h4");
    title.textContent = name;
    const close = button("Close", () => (this.element.hidden = true));
    const parts = Object.entries(texts).flatMap(([heading, text]) => {
      const label = document.createElement("h5");
      const body = document.createElement("pre");
      label.textContent = heading;
      body.textContent = text;
      return [label, body];
    });
    this.element.setAttribute("aria-label", name);
    this.element.replaceChildren(close, title, ...parts);
  }
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

// The live view. The kernel draws the picture once; here only what changes is changed, once per frame.
// Text of agents and models is set as text, never as markup.


/**
 * @typedef {Delta} Delta
 * @typedef {Bar} Bar
 * @typedef {Axis} Axis
 * @typedef {Card} Card
 * @typedef {Head} Head
 * @typedef {Plot} Plot
 * @typedef {Cells} Cells
 * @typedef {{icons: Record<string, string>, names: string[], edges: [number, number][], plot?: Plot, cells?: Cells}} Fixed
 * @typedef {Detail} Detail
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
