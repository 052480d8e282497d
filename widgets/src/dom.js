// Elements, attributes and texts. No string becomes markup of the page.

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
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} [children] strings become text
 * @returns {HTMLElement}
 */
export function html(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
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

/**
 * Replace the state class of an element.
 * @param {Element} element
 * @param {string} state
 */
export function setState(element, state) {
  for (const name of [...element.classList]) if (name.startsWith("s-")) element.classList.remove(name);
  element.classList.add(`s-${state}`);
}

/**
 * The icon of a state.
 * @param {string} outline
 * @param {string} state
 */
export function icon(outline, state) {
  const made = svg("svg", { class: `am-icon s-${state}`, viewBox: "0 0 12 12", width: "12", height: "12", "aria-hidden": "true" });
  made.append(svg("path", { class: "i", d: outline }));
  return made;
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

const MARKS = new Set("P EM STRONG CODE PRE UL OL LI BLOCKQUOTE HR BR S TABLE THEAD TBODY TR TH TD A".split(" "));

/**
 * Rendered Markdown as elements of the page: those of a fixed list, made anew without attributes, links to the web and
 * to mail, and text. The source is parsed in a document of its own, where nothing runs and nothing is loaded.
 * @param {string} source
 */
export function marked(source) {
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
