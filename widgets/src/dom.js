// Elements, attributes and texts: nothing here makes markup of a string.

/** @typedef {{agent: number, name: string, texts: Record<string, string>}} Detail */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @returns {SVGElement}
 */
export function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/**
 * @param {Element | null | undefined} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * @param {Element | null | undefined} element
 * @param {string} key
 * @param {string} value
 */
export function set(element, key, value) {
  if (element && element.getAttribute(key) !== value) element.setAttribute(key, value);
}

/** The panel with one agent's texts. */
export class Panel {
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
export function button(label, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "am-button";
  made.textContent = label;
  made.addEventListener("click", press);
  return made;
}
