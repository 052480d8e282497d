// Questions to a person: what exactly would happen, and the ways on. The first answer counts, on whatever page.
// Nothing takes the focus or has a key of its own, so that no key that was meant for the notebook agrees to anything.

import { button, html, setText } from "./dom.js";

/**
 * @typedef {{number: number, heading: string, rows: [string, string][], text: string, start: string,
 *   ways: [string, string, string], limit: string}} Question
 */

const CALM_MS = 700; // a click that was meant for the question before is none for this one

export class Asking {
  /** @param {(number: number, way: string, text: string) => void} answer */
  constructor(answer) {
    this.answer = answer;
    this.number = 0;
    this.count = html("span", { class: "am-asked" });
    this.element = html("section", { class: "am-ask", "aria-label": "Questions to you", hidden: "" });
    this.spoken = html("span", { class: "am-status", role: "status" });
    this.fault = html("p", { class: "am-error", role: "alert", hidden: "" });
    this.calm = 0;
  }

  /**
   * Show the oldest question, and how many there are. What a person writes for it stays while it is open.
   * @param {Question[]} questions
   */
  show(questions) {
    const [first] = questions;
    this.element.hidden = !first;
    setText(this.count, questions.length > 1 ? `1 of ${questions.length} questions` : "");
    if (!first) {
      this.number = 0;
      this.element.replaceChildren();
      setText(this.spoken, "");
    } else if (first.number !== this.number) {
      const within = this.element.contains(document.activeElement);
      this.number = first.number;
      this.fault.hidden = true;
      setText(this.spoken, `${first.heading}. Approve, edit or deny it above the picture.`);
      this.element.replaceChildren(...this.parts(first));
      if (within) this.heading?.focus(); // the button that was pressed is gone
    }
  }

  /** @param {{number: number, text: string}} fault */
  refuse(fault) {
    if (fault.number !== this.number) return;
    setText(this.fault, fault.text);
    this.fault.hidden = false;
    for (const one of this.buttons ?? []) one.disabled = false;
  }

  /**
   * @param {Question} question
   * @returns {Node[]}
   */
  parts(question) {
    const [approve, edit, deny] = question.ways;
    const give = (/** @type {string} */ way, /** @type {string} */ text) => {
      for (const one of buttons) one.disabled = true;
      this.answer(question.number, way, text);
    };
    const edited = html("textarea", { class: "am-edit", rows: "6", spellcheck: "false", "aria-label": `${edit}: the text as it is to be` });
    const reason = html("input", { class: "am-reason", type: "text", placeholder: "reason (may be empty)", "aria-label": "Reason for denying" });
    const box = html("div", { class: "am-editing", hidden: "" }, [edited]);
    if (edited instanceof HTMLTextAreaElement) edited.value = question.start;
    const valueOf = (/** @type {HTMLElement} */ field) => ("value" in field ? String(field.value) : "");
    const turn = (/** @type {boolean} */ open) => {
      box.hidden = !open;
      shown.hidden = open && !question.ways.includes("Call again");
      for (const one of [agree, change]) one.hidden = open;
      for (const one of [use, back]) one.hidden = !open;
      (open ? edited : change).focus();
    };
    const agree = button(approve, () => give("approve", ""));
    const change = button(edit, () => turn(true));
    const use = button("Use the changed text", () => give("edit", valueOf(edited)));
    const back = button("Back", () => turn(false));
    const refuse = button(deny, () => give("deny", valueOf(reason)));
    agree.classList.add("am-agree");
    use.classList.add("am-agree");
    for (const one of [use, back]) one.hidden = true;
    edited.addEventListener("keydown", (event) => event.key === "Escape" && turn(false));
    const buttons = (this.buttons = [agree, change, use, back, refuse]);
    for (const one of buttons) one.disabled = true;
    clearTimeout(this.calm);
    this.calm = setTimeout(() => buttons.forEach((one) => (one.disabled = false)), CALM_MS);
    const shown = html("div", { class: "am-would" }, [would(question)]);
    this.heading = html("h4", { tabindex: "-1" }, [question.heading]);
    return [
      html("div", { class: "am-bar" }, [this.heading, html("span", { class: "am-gap" }), this.count]),
      shown,
      box,
      this.fault,
      html("div", { class: "am-bar" }, [agree, change, use, back, refuse, reason]),
      html("p", { class: "am-said" }, [question.limit]),
    ];
  }

  /** Nobody can answer any more. */
  end() {
    clearTimeout(this.calm);
    this.show([]);
  }
}

/**
 * What would happen: arguments as a table, else the text.
 * @param {Question} question
 */
function would({ rows, text, heading }) {
  if (!rows.length) return html("pre", { tabindex: "0", "aria-label": heading }, [text]);
  const lines = rows.map(([name, value]) => html("tr", {}, [html("th", { scope: "row" }, [name]), html("td", {}, [value])]));
  return html("table", { "aria-label": heading }, [html("tbody", {}, lines)]);
}
