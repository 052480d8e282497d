// Groups of agents: a ring per group, and a cell per agent of the open group.

import { button, html, set, setState, setText, svg } from "./dom.js";
import { arcs, cellPaths, cellsFor, nextFocus, short, unfold } from "./pure.js";

/**
 * @typedef {import("./pure.js").Tally} Tally
 * @typedef {import("./cards.js").Fixed} Fixed
 */

const MOST_NAMED = 8;

export class Rings {
  /**
   * @param {Element} root
   * @param {Fixed} fixed
   */
  constructor(root, fixed) {
    this.groups = fixed.groups ?? [];
    this.alone = this.groups.map(({ agents }) => (agents.length === 1 && agents[0]?.[1] === 1 ? agents[0][0] : -1));
    this.nodes = [...root.querySelectorAll(".gr")];
    this.rings = this.nodes.map((node) => [...node.querySelectorAll(".ra")]);
    this.length = 2 * Math.PI * Number(root.querySelector(".ra")?.getAttribute("r") ?? 1);
  }

  /**
   * @param {number} group
   * @param {Tally} tally
   */
  tally(group, [parts, total, share, done, rest, tone, who, answer]) {
    const node = this.nodes[group];
    if (!node) return;
    arcs(parts, total, this.length).forEach(([long, start], place) => {
      const arc = this.rings[group]?.[place];
      set(arc, "stroke-dasharray", `${short(long)} ${short(this.length)}`);
      set(arc, "stroke-dashoffset", short(-start));
    });
    setText(node.querySelector(".rp"), share);
    setText(node.querySelector(".l"), done);
    setText(node.querySelector(".w"), rest);
    setText(node.querySelector(".wh"), who);
    setText(node.querySelector(".an"), answer);
    if (!node.classList.contains(`s-${tone}`)) setState(node, tone);
    const { label, where } = this.groups[group] ?? { label: "", where: "" };
    const words = [label, where, done, rest, who, answer].filter(Boolean).join(" · ");
    setText(node.querySelector("title"), words);
    set(node, "aria-label", words);
  }
}

/** The agents of one group. */
export class Drawer {
  /**
   * @param {Fixed} fixed
   * @param {(agent: number, anchor: Element) => void} open
   */
  constructor(fixed, open) {
    this.fixed = fixed;
    this.open_ = open;
    /** @type {number[]} */
    this.agents = [];
    this.states = "";
    this.inside = "";
    this.at = 0;
    this.cells = cellsFor(0, 900);
    this.title = html("h4");
    this.named = html("span", { class: "am-named", "aria-live": "polite" });
    this.failed = html("div", { class: "am-failed" });
    this.field = svg("svg", { class: "am-fig am-field", role: "group", tabindex: "0" });
    this.paths = svg("g", {});
    this.mark = svg("rect", { class: "am-mark", rx: "2" });
    this.field.append(this.paths, this.mark);
    const close = button("Close", () => this.close());
    this.element = html("section", { class: "am-drawer" }, [
      html("div", { class: "am-bar" }, [this.title, this.named, html("span", { class: "am-gap" }), close]),
      this.failed,
      this.field,
    ]);
    this.element.hidden = true;
    this.listen();
  }

  close() {
    this.element.hidden = true;
    this.agents = [];
    if (this.anchor instanceof SVGElement) this.anchor.focus({ preventScroll: true });
  }

  /**
   * @param {number} group
   * @param {Element} anchor
   * @param {string} states
   */
  open(group, anchor, states) {
    const found = this.fixed.groups?.[group];
    if (!found) return;
    this.anchor = anchor;
    this.agents = unfold(found.agents);
    this.inside = "";
    this.at = 0;
    this.element.hidden = false;
    this.cells = cellsFor(this.agents.length, Math.max(200, this.element.clientWidth - 32));
    const { pitch, columns } = this.cells;
    const width = columns * pitch;
    const height = Math.ceil(this.agents.length / columns) * pitch;
    for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) set(this.field, key, String(value));
    set(this.mark, "width", short(pitch));
    set(this.mark, "height", short(pitch));
    set(this.element, "aria-label", `Agents of ${found.label}`);
    set(this.field, "aria-label", `${this.agents.length} agents of ${found.label}: arrow keys move, Enter opens one`);
    setText(this.title, `${found.label} · ${found.where}`);
    this.show(states);
    this.point(0);
    this.element.scrollIntoView({ block: "nearest" });
    this.field.focus({ preventScroll: true });
  }

  /** @param {string} states */
  show(states) {
    this.states = states;
    if (this.element.hidden) return;
    const inside = this.agents.map((agent) => states[agent]).join("");
    if (inside === this.inside) return;
    this.inside = inside;
    const { size, pitch } = this.cells;
    const look = { "stroke-width": short(size), "stroke-dasharray": `${short(size)} ${short(pitch - size)}` };
    const paths = Object.entries(cellPaths(inside, this.cells, 0));
    this.paths.replaceChildren(...paths.map(([state, d]) => svg("path", { class: `z s-${state}`, d, ...look })));
    this.name();
    this.list();
  }

  /** Name the first failed agents, since a cell has no name. */
  list() {
    const lost = this.agents.filter((agent) => this.states[agent] === "f");
    if (lost.join() === this.lost) return;
    this.lost = lost.join();
    const named = lost.slice(0, MOST_NAMED).map((agent) => button(this.fixed.names[agent] ?? "", () => this.open_(agent, this.failed)));
    const more = lost.length > MOST_NAMED ? ` and ${lost.length - MOST_NAMED} more` : "";
    this.failed.replaceChildren(...(lost.length ? ["failed: ", ...named, more] : []));
  }

  /** @param {number} place */
  point(place) {
    this.at = place;
    const { pitch, size, columns } = this.cells;
    const off = (pitch - size) / 2;
    set(this.mark, "x", short((place % columns) * pitch - off));
    set(this.mark, "y", short(Math.floor(place / columns) * pitch - off));
    this.name();
  }

  name() {
    const agent = this.agents[this.at];
    if (agent === undefined) return;
    setText(this.named, `${this.fixed.names[agent]}: ${this.fixed.words[this.states[agent] ?? "p"] ?? ""}`);
  }

  listen() {
    const placeAt = (/** @type {MouseEvent} */ event) => {
      const box = this.field.getBoundingClientRect();
      const { pitch, columns } = this.cells;
      const scale = box.width / (columns * pitch) || 1;
      const place = Math.floor((event.clientY - box.top) / scale / pitch) * columns + Math.floor((event.clientX - box.left) / scale / pitch);
      return place >= 0 && place < this.agents.length ? place : -1;
    };
    const open = () => {
      const agent = this.agents[this.at];
      if (agent !== undefined) this.open_(agent, this.field);
    };
    this.field.addEventListener("pointermove", (event) => {
      const place = placeAt(event);
      if (place >= 0) this.point(place);
    });
    this.field.addEventListener("click", (event) => {
      const place = placeAt(event);
      if (place < 0) return;
      this.point(place);
      open();
    });
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Tab") return;
      event.stopPropagation(); // the notebook has its own keys
      if (event.key === "Escape") return this.close();
      if (event.target !== this.field) return;
      const next = nextFocus(event.key, this.at, this.agents.length, this.cells.columns);
      if (event.key === "Enter" || event.key === " ") open();
      else if (next !== this.at) this.point(next);
      else return;
      event.preventDefault();
    });
  }
}
