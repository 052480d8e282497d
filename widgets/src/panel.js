// The panel that a click on an agent opens, beside its card.

import { button, html, icon, marked, setText } from "./dom.js";
import { besideCard, verbsFor } from "./pure.js";

/**
 * @typedef {{agent: number, name: string, state: string, word: string, facts: string, headings: string[],
 *   attempts: string[][], error: string, texts: Record<string, string>, rendered: string,
 *   pictures: {src: string, label: string}[], turns: Turn[], edits: boolean}} Detail
 * @typedef {{agent: number, start?: string, done?: string, fault?: string}} Edit
 * @typedef {{heading: string, said: string, calls: Call[]}} Turn
 * @typedef {{number: number, tool: string, status: string, facts: string, arguments: [string, string][],
 *   texts: Record<string, string>, pictures: {src: string, label: string}[]}} Call
 */

const WIDTH = 480;
const HEIGHT = 440;
const LABELS = { retry: "Retry", skip: "Skip" };
const HINTS = { retry: "Run this agent again, and those skipped because of it", skip: "Skip this agent, and those that need its answer" };

export class Panel {
  /**
   * @param {HTMLElement} root its container
   * @param {{icons: Record<string, string>, verbs: string[]}} fixed
   * @param {(verb: string, agent: number, text?: string) => void} press
   */
  constructor(root, { icons, verbs }, press) {
    this.root = root;
    /** @type {Map<number, string>} what was written in place of answers, also when the panel was closed meanwhile */
    this.drafts = new Map();
    this.editing = false;
    this.icons = icons;
    this.verbs = verbs;
    this.press = press;
    this.agent = -1;
    this.key = "";
    /** @type {Element | null} */
    this.anchor = null;
    this.element = html("section", { class: "am-detail", role: "dialog", tabindex: "-1" });
    this.element.hidden = true;
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
      if (event.key !== "Tab") event.stopPropagation(); // the notebook has its own keys
    });
  }

  /** The run is over: nothing can be steered. */
  end() {
    this.verbs = [];
    for (const made of this.element.querySelectorAll("[data-verb='retry'], [data-verb='skip']")) made.remove();
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /**
   * @param {number} agent
   * @param {string} name
   * @param {Element} anchor
   */
  open(agent, name, anchor) {
    this.agent = agent;
    this.anchor = anchor;
    this.key = "";
    this.editing = false;
    this.element.setAttribute("aria-label", `Agent ${name}`);
    this.element.replaceChildren(html("h4", {}, [name]));
    this.element.hidden = false;
    this.place();
    this.element.focus({ preventScroll: true });
  }

  close() {
    this.element.hidden = true;
    this.agent = -1;
    this.root.style.minHeight = "";
    if (this.anchor instanceof SVGElement || this.anchor instanceof HTMLElement) this.anchor.focus({ preventScroll: true });
  }

  place() {
    const view = this.root.getBoundingClientRect();
    const card = /** @type {Element} */ (this.anchor).getBoundingClientRect();
    const width = Math.min(WIDTH, view.width - 20);
    if (view.height < HEIGHT + 20) this.root.style.minHeight = `${HEIGHT + 20}px`;
    const around = { width: view.width, height: Math.max(view.height, HEIGHT + 20) };
    const box = { left: card.left - view.left, right: card.right - view.left, top: card.top - view.top };
    const { x, y } = besideCard(box, around, { width, height: HEIGHT });
    Object.assign(this.element.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, maxHeight: `${HEIGHT}px` });
  }

  /** @param {Detail} detail */
  show(detail) {
    if (detail.agent !== this.agent || this.element.hidden || this.editing) return;
    const key = JSON.stringify({ ...detail, texts: null, rendered: Boolean(detail.rendered), headings: Object.keys(detail.texts) });
    if (key === this.key) { // only the arriving text has grown
      const bodies = this.element.querySelectorAll("pre.am-text");
      Object.values(detail.texts).forEach((text, place) => setText(bodies[place], text));
      return;
    }
    this.key = key;
    const held = this.element.contains(document.activeElement) ? document.activeElement?.getAttribute("data-verb") : null;
    const at = this.element.scrollTop;
    const unfolded = [...this.element.querySelectorAll("details[open]")].map((one) => one.getAttribute("data-call"));
    this.element.replaceChildren(...this.parts(detail));
    for (const one of this.element.querySelectorAll("details")) one.open = unfolded.includes(one.getAttribute("data-call"));
    this.element.scrollTop = at;
    if (held !== null) {
      const again = held ? this.element.querySelector(`[data-verb="${held}"]`) : null;
      (again instanceof HTMLElement ? again : this.element).focus({ preventScroll: true });
    }
  }

  /**
   * The kernel's word on an edit: the text to begin with, what follows from it, or why it cannot be.
   * @param {Edit} word
   */
  edit({ agent, start, done, fault }) {
    if (agent !== this.agent || this.element.hidden) return;
    if (start !== undefined && !this.editing) this.beginEdit(agent, start);
    for (const one of this.element.querySelectorAll("[data-verb='use']")) if (one instanceof HTMLButtonElement) one.disabled = false;
    this.element.querySelector(".am-edited")?.remove();
    if (done !== undefined) {
      this.drafts.delete(agent);
      this.endEdit();
    }
    const word = done ?? fault;
    if (word === undefined) return;
    const told = html("p", { class: `am-edited ${fault ? "am-error" : "am-said"}`, role: fault ? "alert" : "status" }, [word]);
    this.element.querySelector(this.editing ? ".am-edit" : ".am-bar")?.after(told);
  }

  /**
   * @param {number} agent
   * @param {string} start
   */
  beginEdit(agent, start) {
    this.editing = true;
    const field = document.createElement("textarea");
    Object.assign(field, { className: "am-edit", rows: 10, spellcheck: false, value: this.drafts.get(agent) ?? start });
    field.setAttribute("aria-label", "The text in place of this answer");
    field.addEventListener("input", () => this.drafts.set(agent, field.value));
    const use = button("Use this text", () => {
      use.disabled = true;
      this.press("edit", agent, field.value);
    });
    use.dataset.verb = "use";
    use.classList.add("am-agree");
    const back = button("Back", () => this.endEdit());
    const box = html("div", { class: "am-editing" }, [field, html("div", { class: "am-bar" }, [use, back])]);
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.endEdit();
      event.stopPropagation(); // the panel stays open
    });
    this.element.querySelector(".am-bar")?.after(box);
    field.focus();
  }

  endEdit() {
    this.editing = false;
    this.element.querySelector(".am-editing")?.remove();
    const made = this.element.querySelector("[data-verb='edit']");
    if (made instanceof HTMLElement) made.focus({ preventScroll: true });
  }

  /**
   * @param {Detail} detail
   * @returns {Node[]}
   */
  parts(detail) {
    const verbs = verbsFor(detail.state).filter((verb) => this.verbs.includes(verb)).map((verb) => {
      const made = button(LABELS[verb], () => {
        this.press(verb, detail.agent);
        this.element.focus({ preventScroll: true }); // a disabled button loses the focus
        made.disabled = true;
      });
      made.title = HINTS[verb];
      made.dataset.verb = verb;
      made.setAttribute("aria-label", `${LABELS[verb]} ${detail.name}`);
      return made;
    });
    if (detail.edits) {
      const made = button("Edit", () => this.press("edit", detail.agent));
      made.title = "Put your text in place of this answer";
      made.dataset.verb = "edit";
      made.setAttribute("aria-label", `Edit the answer of ${detail.name}`);
      verbs.push(made);
    }
    const close = button("Close", () => this.close());
    close.dataset.verb = "close";
    /** @type {Node[]} */
    const parts = [
      html("div", { class: "am-bar" }, [icon(this.icons[detail.state] ?? "", detail.state), html("h4", {}, [detail.name]), html("span", { class: `am-word s-${detail.state}` }, [detail.word]), html("span", { class: "am-gap" }), ...verbs, close]),
      html("p", { class: "am-said" }, [detail.facts]),
    ];
    if (detail.error) parts.push(html("p", { class: "am-error" }, [detail.error]));
    const [first, ...rest] = Object.entries(detail.texts).map(([heading, text]) => written(heading, text, heading === "answer" ? detail.rendered : ""));
    parts.push(...(first ?? []));
    for (const turn of detail.turns) parts.push(conversation(turn));
    if (detail.attempts.length) parts.push(attempts(detail));
    parts.push(...thumbnails(detail.pictures));
    return [...parts, ...rest.flat()];
  }
}

/**
 * A text under its heading, with a button that copies it, and one that shows what was rendered as it came.
 * @param {string} heading
 * @param {string} text
 * @param {string} rendered
 * @returns {Node[]}
 */
function written(heading, text, rendered) {
  const raw = html("pre", { class: "am-text", tabindex: "0", "aria-label": heading }, [text]);
  const copied = button("Copy", async () => {
    const done = await toClipboard(raw.textContent ?? "");
    setText(copied, done ? "Copied" : "Press Ctrl+C");
    if (!done) getSelection()?.selectAllChildren(raw);
  });
  copied.setAttribute("aria-label", `Copy: ${heading}`);
  const bar = html("div", { class: "am-bar am-over-text" }, [html("h5", {}, [heading]), html("span", { class: "am-gap" })]);
  if (!rendered) {
    bar.append(copied);
    return [bar, raw];
  }
  const shown = marked(rendered);
  raw.hidden = true;
  const turn = button("Raw", () => {
    raw.hidden = !raw.hidden;
    shown.hidden = !raw.hidden;
    setText(turn, raw.hidden ? "Raw" : "Rendered");
  });
  bar.append(turn, copied);
  return [bar, shown, raw];
}

/**
 * Copy to the clipboard. Pages that came without https have none.
 * @param {string} text
 * @returns {Promise<boolean>}
 */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * A turn: what the model said, and what it called.
 * @param {Turn} turn
 */
function conversation({ heading, said, calls }) {
  const words = said ? [html("p", { class: "am-told" }, [said])] : [];
  return html("div", { class: "am-turn" }, [html("h5", {}, [heading]), ...words, ...calls.map(called)]);
}

/**
 * Small pictures in a row.
 * @param {{src: string, label: string}[]} pictures
 */
function thumbnails(pictures) {
  const every = pictures.map(({ src, label }) => html("img", { src, alt: label, title: label }));
  return every.length ? [html("p", { class: "am-sent" }, every)] : [];
}

/**
 * A call: its arguments as a small table, and folded what came of it.
 * @param {Call} call
 */
function called({ number, tool, status, facts, arguments: given, texts, pictures }) {
  const bad = status === "failed" || status === "denied";
  const rows = given.map(([name, value]) => html("tr", {}, [html("th", { scope: "row" }, [name]), html("td", {}, [value])]));
  const table = rows.length ? [html("table", { class: "am-given" }, [html("tbody", {}, rows)])] : [];
  const title = html("div", { class: "am-tool" }, [html("b", {}, [tool]), ` ${facts}`]);
  const folded = Object.entries(texts).flatMap(([what, text]) => {
    const raw = html("pre", { tabindex: "0", "aria-label": `${what} of ${tool}` }, [text]);
    return what === "result" ? [...thumbnails(pictures), raw] : [html("h5", {}, [what]), raw];
  });
  const fold = html("details", { "data-call": String(number) }, [html("summary", {}, [Object.keys(texts).join(", ")]), ...folded]);
  return html("div", { class: `am-call${bad ? " am-bad" : ""}` }, [title, ...table, ...(folded.length ? [fold] : [])]);
}

/** @param {Detail} detail */
function attempts(detail) {
  const head = html("tr", {}, detail.headings.map((word) => html("th", { scope: "col" }, [word || "attempt"])));
  const rows = detail.attempts.flatMap((row) => {
    const error = row[detail.headings.length];
    const cells = row.slice(0, detail.headings.length).map((word, place) => html(place ? "td" : "th", place ? {} : { scope: "row" }, [word]));
    const more = error ? [html("tr", {}, [html("td", { class: "am-why", colspan: String(detail.headings.length) }, [error])])] : [];
    return [html("tr", {}, cells), ...more];
  });
  return html("table", {}, [html("thead", {}, [head]), html("tbody", {}, rows)]);
}
