// Cards, edges, the critical path, and the bars under the graph.

import { set, setState, setText, svg } from "./dom.js";
import { barBox, seconds, short } from "./pure.js";

/**
 * @typedef {import("./pure.js").Bar} Bar
 * @typedef {import("./pure.js").Axis} Axis
 * @typedef {import("./pure.js").Card} Card
 * @typedef {import("./pure.js").Plot} Plot
 * @typedef {{title: string, icons: Record<string, string>, words: Record<string, string>, pills: Record<string, number>,
 *   names: string[], tasks: number[], edges: [number, number, number][], plot?: Plot, groups?: import("./pure.js").Group[],
 *   meanings: Record<string, string>, legend: string[], phases: Record<string, string>, rows?: number[], verbs: string[]}} Fixed
 */

export class Cards {
  /**
   * @param {Element} root
   * @param {Fixed} fixed
   */
  constructor(root, fixed) {
    this.fixed = fixed;
    this.nodes = [...root.querySelectorAll(".n")];
    this.edges = [...root.querySelectorAll(".e")];
    this.lines = this.nodes.map((node) => node.querySelector(".l"));
    this.bars = this.nodes.map((node) => node.querySelector(".g"));
    this.widths = this.nodes.map((node) => {
      const ground = node.querySelector(".c"); // the outline of a task has no width of its own
      return Number(ground?.getAttribute("width") ?? ground?.getAttribute("data-w"));
    });
    this.tasks = new Set(fixed.tasks);
    /** @type {Map<number, [since: number, rest: string]>} */
    this.running = new Map();
    /** @type {string[]} */
    this.states = [];
    this.now = 0;
  }

  /**
   * @param {number} agent
   * @param {string} state
   */
  state(agent, state) {
    const node = this.nodes[agent];
    if (!node) return;
    this.states[agent] = state;
    setState(node, state);
    set(node.querySelector(".i"), "d", this.fixed.icons[state] ?? "");
    this.say(agent, "", "");
  }

  /**
   * @param {number} agent
   * @param {Card} card
   */
  card(agent, [line, tail, share, badge, since]) {
    const node = this.nodes[agent];
    if (!node) return;
    if (since === null) this.running.delete(agent);
    else this.running.set(agent, [since, line]);
    if (since === null) setText(this.lines[agent], line);
    else this.line(agent, since, line);
    setText(node.querySelector(".w"), tail);
    setText(node.querySelector(".x"), badge);
    const width = this.widths[agent] ?? 0;
    const wide = this.fixed.pills[badge] ?? 0;
    const pill = node.querySelector(".q");
    set(pill, "x", short(width - 12 - wide));
    set(pill, "width", short(wide));
    this.say(agent, since === null ? line : "", since === null ? [badge, tail].filter(Boolean).join(" · ") : badge);
    const bar = this.bars[agent];
    bar?.classList.toggle("go", share === null);
    set(bar, "width", short((width - 24) * (share ?? 1)));
  }

  /**
   * What a tooltip and a screen reader say: nothing that changes every moment.
   * @param {number} agent
   * @param {string} line
   * @param {string} rest
   */
  say(agent, line, rest) {
    const word = this.fixed.words[this.states[agent] ?? "p"] ?? "";
    const words = [this.fixed.names[agent] ?? "", this.tasks.has(agent) ? "task" : "", word, line, rest].filter(Boolean).join(" · ");
    setText(this.nodes[agent]?.querySelector("title"), words);
    set(this.nodes[agent], "aria-label", words);
  }

  /**
   * @param {number} agent
   * @param {number} since
   * @param {string} rest
   */
  line(agent, since, rest) {
    setText(this.lines[agent], seconds(Math.max(0, this.now - since)) + (rest && ` · ${rest}`));
  }

  /** @param {number | null} now */
  tick(now) {
    if (now === null) return;
    this.now = now;
    for (const [agent, [since, rest]] of this.running) this.line(agent, since, rest);
  }

  /** @param {number[]} path */
  path(path) {
    const on = new Set(path);
    const steps = new Set(path.slice(1).map((agent, place) => `${path[place]} ${agent}`));
    this.nodes.forEach((node, agent) => node.classList.toggle("on", on.has(agent)));
    this.fixed.edges.forEach(([parent, child], place) => {
      const edge = this.edges[place];
      if (edge?.classList.toggle("on", steps.has(`${parent} ${child}`))) this.nodes[0]?.before(edge); // drawn last
    });
  }

  /**
   * Thicken the edges that a text has gone through.
   * @param {number} agent
   * @param {number} flow
   */
  flow(agent, flow) {
    this.fixed.edges.forEach(([parent, , passes], place) => {
      const edge = this.edges[place];
      if (parent !== agent || !passes || !edge || edge.classList.contains(`f${flow}`)) return;
      for (const name of [...edge.classList]) if (/^f\d$/.test(name)) edge.classList.remove(name);
      edge.classList.add(`f${flow}`);
    });
  }
}

export class Times {
  /**
   * @param {Element} root
   * @param {Plot} plot
   * @param {Fixed} fixed
   */
  constructor(root, plot, fixed) {
    this.plot = plot;
    this.fixed = fixed;
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
   * Bring a row up to date; bars that stay are not touched.
   * @param {number} row
   * @param {Bar[]} bars
   */
  row(row, bars) {
    const before = this.rows.get(row) ?? [];
    for (const { element } of before.slice(bars.length)) element.remove();
    const made = bars.map((bar, place) => {
      const old = before[place];
      const same = old && (old.bar[0] === "b") === (bar[0] === "b");
      const element = same ? old.element : svg(bar[0] === "b" ? "path" : "rect", {});
      if (old && !same) old.element.replaceWith(element);
      set(element, "class", `b b-${bar[0]} s-${bar[1]}`);
      this.place(element, bar, row);
      this.say(element, bar, row);
      if (!element.isConnected) this.bars?.append(element);
      return { bar, element };
    });
    this.rows.set(row, made);
  }

  /**
   * What a bar says under the mouse: whose it is, what was done, from when to when.
   * @param {SVGElement} element
   * @param {Bar} bar
   * @param {number} row
   */
  say(element, [kind, , from, to, what], row) {
    const name = this.fixed.groups ? this.fixed.groups[row]?.label : this.fixed.names[this.fixed.rows?.[row] ?? -1];
    const long = to === null ? [`since ${seconds(from)}`] : [seconds(to - from), `${seconds(from)} to ${seconds(to)}`];
    set(element, "data-row", String(row));
    const title = element.querySelector("title") ?? svg("title", {});
    if (!title.isConnected) element.append(title);
    setText(title, [name, this.fixed.phases[kind], what, ...long].filter(Boolean).join(" · "));
  }

  /**
   * Call back with the agent or group whose bar is under the mouse, -1 without one, and with the one that is clicked.
   * @param {(place: number) => void} over
   * @param {(place: number) => void} open
   */
  listen(over, open) {
    const placeOf = (/** @type {Event} */ event) => {
      const row = event.target instanceof Element ? event.target.closest("[data-row]")?.getAttribute("data-row") : null;
      return row === null || row === undefined ? -1 : this.fixed.rows?.[Number(row)] ?? Number(row);
    };
    this.bars?.addEventListener("pointerover", (event) => over(placeOf(event)));
    this.bars?.addEventListener("pointerout", () => over(-1));
    this.bars?.addEventListener("click", (event) => placeOf(event) >= 0 && open(placeOf(event)));
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
