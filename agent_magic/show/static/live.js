// built from widgets/src by widgets/build.py: change it there
// The parts of the view without a page, tested by `node --test widgets/test`.

/**
 * @typedef {{counts: string, progress: [state: string, share: number][], facts: [string, string][], left: string,
 *   paused: boolean, took: string}} Head
 * @typedef {[kind: string, value: string, percent: number | null, level: string, hint: string]} Meter
 * @typedef {{level: string, word: string, notes: string, meters: Meter[]}} Strip
 * @typedef {{span: number, ticks: [number, string][]}} Axis
 * @typedef {[line: string, tail: string, share: number | null, badge: string, since: number | null]} Card
 * @typedef {[kind: string, tone: string, from: number, to: number | null, what?: string]} Bar
 * @typedef {[parts: number[], total: number, share: string, done: string, rest: string, tone: string,
 *   who: string, answer: string]} Tally
 * @typedef {{nodes?: Record<string, Card>, bars?: Record<string, Bar[]>, groups?: Record<string, Tally>,
 *   flows?: Record<string, number>, path?: number[], axis?: Axis, now?: number | null, head?: Head,
 *   strip?: Strip | null, alerts?: string[]}} Delta
 * @typedef {{x: number, y: number, w: number, row: number, bar: number, bottom: number}} Plot
 * @typedef {{label: string, where: string, agents: [number, number][]}} Group
 * @typedef {{x: number, pitch: number, size: number, columns: number}} Cells
 */

/**
 * The indices at which two strings of states differ.
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
 * The position of a bar. A bar without an end extends to the present.
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
  const height = kind === "q" ? Math.min(3, plot.bar / 2) : kind === "t" ? (plot.bar * 7) / 11 : plot.bar;
  const middle = plot.y + row * plot.row + plot.bar / 2;
  return { x: start, y: middle - height / 2, width, height, middle, radius: kind > "4" ? Math.min(2.5, height / 2, width / 2) : 0 };
}

/**
 * A path of cells per state: a dashed line for each run of neighbours.
 * @param {string} states in the order of the cells
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
 * The size of the cells of a group, and their number in a row.
 * @param {number} count
 * @param {number} width
 * @returns {Cells}
 */
function cellsFor(count, width) {
  const pitch = count <= 600 ? 16 : count <= 3000 ? 11 : 8;
  return { x: 0, pitch, size: pitch * 0.78, columns: Math.max(1, Math.floor(width / pitch)) };
}

/**
 * Expand runs of (first, count) to numbers.
 * @param {[number, number][]} stretches first, how many
 * @returns {number[]}
 */
function unfold(stretches) {
  return stretches.flatMap(([first, count]) => Array.from({ length: count }, (_, place) => first + place));
}

/**
 * The parts of a ring, clockwise from the top.
 * @param {number[]} parts
 * @param {number} total
 * @param {number} length of the whole ring
 * @returns {[long: number, start: number][]}
 */
function arcs(parts, total, length) {
  let start = 0;
  return parts.map((part) => {
    const long = (length * part) / (total || 1);
    start += long;
    return [long, start - long];
  });
}

/**
 * Write a duration as the kernel does.
 * @param {number} value
 */
function seconds(value) {
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const two = (/** @type {number} */ one) => String(one).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

/**
 * The commands for an agent in a state.
 * @param {string} state
 * @returns {("retry" | "skip")[]}
 */
function verbsFor(state) {
  if ("fkc".includes(state)) return ["retry"];
  return "pqr".includes(state) ? ["skip"] : [];
}

/**
 * A coordinate with at most one decimal.
 * @param {number} value
 */
function short(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

/**
 * The progress in words, for screen readers.
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
 * The index that has the focus after an arrow key.
 * @param {string} key
 * @param {number} here
 * @param {number} count
 * @param {number} [row] how far up and down go
 */
function nextFocus(key, here, count, row = 1) {
  const step = { ArrowRight: 1, ArrowDown: row, ArrowLeft: -1, ArrowUp: -row }[key];
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return step === undefined ? here : Math.min(count - 1, Math.max(0, here + step));
}

/**
 * The position of a panel: beside its card, else at the edge with room, inside the view.
 * @param {{left: number, right: number, top: number}} card
 * @param {{width: number, height: number}} view
 * @param {{width: number, height: number}} panel
 */
function besideCard(card, view, panel) {
  const gap = 10;
  const right = card.right + gap;
  const left = card.left - gap - panel.width;
  const x = right + panel.width <= view.width ? right : left >= 0 ? left : Math.max(0, view.width - panel.width - gap);
  return { x, y: Math.max(gap, Math.min(card.top - gap, view.height - panel.height - gap)) };
}

// Elements, attributes and texts. No string becomes markup of the page.

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
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} [children] strings become text
 * @returns {HTMLElement}
 */
function html(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
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

/**
 * Replace the state class of an element.
 * @param {Element} element
 * @param {string} state
 */
function setState(element, state) {
  for (const name of [...element.classList]) if (name.startsWith("s-")) element.classList.remove(name);
  element.classList.add(`s-${state}`);
}

/**
 * The icon of a state.
 * @param {string} outline
 * @param {string} state
 */
function icon(outline, state) {
  const made = svg("svg", { class: `am-icon s-${state}`, viewBox: "0 0 12 12", width: "12", height: "12", "aria-hidden": "true" });
  made.append(svg("path", { class: "i", d: outline }));
  return made;
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

const MARKS = new Set("P EM STRONG CODE PRE UL OL LI BLOCKQUOTE HR BR S TABLE THEAD TBODY TR TH TD A".split(" "));

/**
 * Rendered Markdown as elements of the page: those of a fixed list, made anew without attributes, links to the web and
 * to mail, and text. The source is parsed in a document of its own, where nothing runs and nothing is loaded.
 * @param {string} source
 */
function marked(source) {
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

// What a notebook saves of a view. A saved view without its kernel shows an error, so this keeps it out of the file.
// Only JupyterLab and Notebook 7 let a view see its notebook; elsewhere nothing happens.

const VIEW = "application/vnd.jupyter.widget-view+json";
const ENDS = ["dead", "terminating", "restarting", "autorestarting"];

/**
 * @typedef {{get(key: string): any, set(key: string, value: object): void}} SharedOutput
 * @typedef {{sharedModel?: {youtputs?: Iterable<SharedOutput>}}} Cell
 * @typedef {{connect(slot: (from: any, word: string) => void): void, disconnect(slot: (from: any, word: string) => void): void}} Signal
 * @typedef {{insertCell(at: number, cell: object): void}} SharedNotebook
 * @typedef {{context?: {model?: {cells?: Iterable<Cell>, sharedModel?: SharedNotebook}, sessionContext?: {statusChanged?: Signal}}}} Manager
 */

/**
 * Remove a view from the saved output, not from the page; its other representations stay.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
function unsave(manager, id) {
  for (const [output, { [VIEW]: _, ...rest }] of outputsOf(manager, id)) output.set("data", rest);
}

/**
 * Whether this page can write into the saved output of a view.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
function keeps(manager, id) {
  return outputsOf(manager, id).length > 0;
}

/**
 * The saved outputs of a view, and their representations.
 * @param {Manager | undefined} manager
 * @param {string} id
 * @returns {[SharedOutput, Record<string, any>][]}
 */
function outputsOf(manager, id) {
  const cells = [...(manager?.context?.model?.cells ?? [])];
  const outputs = cells.flatMap((cell) => [...(cell.sharedModel?.youtputs ?? [])]);
  return outputs.filter((one) => typeof one.get === "function" && one.get("data")?.[VIEW]?.model_id === id).map((one) => [one, one.get("data")]);
}

/**
 * Save the static picture in the output of a view. The view stays in the page.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 * @param {Object<string, string>} still its representations
 */
function saveStill(manager, id, still) {
  for (const [output] of outputsOf(manager, id)) output.set("data", still);
}

/**
 * What a view can do with its notebook: write its saved output, and put a cell below its own. `null` where it cannot.
 * @param {Manager | undefined} manager
 * @param {string} id of the widget that is displayed
 */
function homeOf(manager, id) {
  const model = manager?.context?.model;
  const saved = outputsOf(manager, id);
  const mine = (/** @type {SharedOutput} */ one) => saved.some(([output]) => output === one);
  const cell = [...(model?.cells ?? [])].find((one) => [...(one.sharedModel?.youtputs ?? [])].some(mine));
  if (!cell) return null;
  return {
    /** @param {Object<string, string>} still */
    save: (still) => saved.forEach(([output]) => output.set("data", still)),
    /** @param {string} source */
    put: (source) => {
      const at = [...(model?.cells ?? [])].indexOf(cell) + 1;
      model?.sharedModel?.insertCell(at, { cell_type: "code", source });
    },
  };
}

/**
 * Call `ended` when the kernel ends.
 * @param {Manager | undefined} manager
 * @param {() => void} ended
 * @returns {() => void} stop listening
 */
function onKernelEnd(manager, ended) {
  const status = manager?.context?.sessionContext?.statusChanged;
  const hear = (/** @type {any} */ _, /** @type {string} */ word) => {
    if (ENDS.includes(word)) ended();
  };
  status?.connect(hear);
  return () => status?.disconnect(hear);
}

// The header: progress, facts, the health of the API, and the buttons.


/**
 * @typedef {Head} Head
 * @typedef {Strip} Strip
 */

const LEVELS = { ok: "M2 6.5l2.8 2.9L10 3", warn: "M6 1.8L11 10.4H1zM6 5v2.4M6 8.7v.2", bad: "M3.8 1.5h4.4l2.3 2.3v4.4l-2.3 2.3H3.8L1.5 8.2V3.8zM4.4 4.4l3.2 3.2M7.6 4.4L4.4 7.6", none: "M3 6h6" };
const TONES = { ok: "s", warn: "m", bad: "f", none: "p" };

class Header {
  /**
   * @param {string} title
   * @param {string[]} verbs
   * @param {(verb: string) => void} press
   * @param {HTMLElement} legend
   */
  constructor(title, verbs, press, legend) {
    this.counts = html("span", { class: "am-counts" });
    this.time = html("span", { class: "am-time" });
    this.left = html("span", { class: "am-left" });
    this.bar = html("div", { class: "am-progress", role: "progressbar", "aria-label": "Agents done", "aria-valuemin": "0", "aria-valuemax": "100" });
    this.facts = html("div", { class: "am-facts" });
    this.meters = html("div", { class: "am-meters", role: "group", "aria-label": "API health: rate limit used, latency" });
    this.health = html("div", { class: "am-health" });
    for (const one of [this.meters, this.health]) one.style.visibility = "hidden"; // their space is reserved, so that nothing moves when they appear
    this.alerts = html("div", { class: "am-alerts", role: "alert" });
    this.alerts.hidden = true;
    this.paused = false;
    this.pause = button("Pause", () => press(this.paused ? "resume" : "pause"));
    this.pause.title = "Hold new requests; running ones continue";
    this.stop = button("Stop", () => {
      press("stop");
      this.stop.disabled = true;
      this.stop.textContent = "Stopping…";
    });
    this.stop.classList.add("am-stop");
    this.stop.setAttribute("aria-label", "Stop all agents");
    const line = html("div", { class: "am-line" }, [html("strong", { class: "am-title", title }, [title]), this.counts, this.time, this.left]);
    const asked = button("?", () => {
      legend.hidden = !legend.hidden;
      set(asked, "aria-expanded", String(!legend.hidden));
    });
    for (const [key, value] of Object.entries({ "aria-label": "Legend", "aria-expanded": "false", title: "What the picture shows" })) set(asked, key, value);
    asked.classList.add("am-asks");
    const buttons = html("div", { class: "am-buttons" }, [...(verbs.includes("pause") ? [this.pause] : []), this.stop, asked]);
    this.element = html("div", { class: "am-head" }, [
      html("div", { class: "am-top" }, [line, this.health, buttons]),
      this.bar,
      html("div", { class: "am-under" }, [this.facts, this.meters]),
      this.alerts,
      legend,
    ]);
  }

  /** @param {Head} head */
  show(head) {
    setText(this.counts, head.counts);
    setText(this.left, head.left);
    if (head.took) setText(this.time, head.took);
    if (this.bar.childElementCount !== head.progress.length) {
      this.bar.replaceChildren(...head.progress.map(([state]) => html("i", { class: `s-${state}` })));
    }
    head.progress.forEach(([, share], place) => {
      const part = this.bar.children[place];
      const width = `${(share * 100).toFixed(2)}%`;
      if (part instanceof HTMLElement && part.style.width !== width) part.style.width = width;
    });
    set(this.bar, "aria-valuenow", String(Math.round((head.progress[0]?.[1] ?? 0) * 100)));
    if (this.facts.childElementCount !== head.facts.length) {
      this.facts.replaceChildren(...head.facts.map(() => html("span")));
    }
    [...this.facts.children].forEach((run, place) => {
      const [look, text] = head.facts[place] ?? ["", ""];
      set(run, "class", look);
      setText(run, text);
    });
    this.paused = head.paused;
    setText(this.pause, head.paused ? "Resume" : "Pause");
    set(this.pause, "aria-label", head.paused ? "Resume: send new requests again" : "Pause: hold new requests");
    this.element.classList.toggle("am-paused", head.paused);
  }

  /** The run is over: there is nothing to press, and no limit to watch. Their places stay, so that nothing moves. */
  over() {
    this.element.classList.add("am-over");
    this.alerts.hidden = true;
    for (const one of [this.meters, this.health, this.pause, this.stop]) one.style.visibility = "hidden";
  }

  /** Show that the kernel has ended: no more updates will come. */
  end() {
    for (const one of [this.pause, this.stop]) one.disabled = true;
    setText(this.left, "the kernel has ended");
  }

  /** @param {number | null} now */
  tick(now) {
    if (now !== null) setText(this.time, seconds(now));
  }

  /**
   * Show the alerts that go on.
   * @param {string[]} alerts
   */
  alarm(alerts) {
    this.alerts.hidden = !alerts.length;
    this.alerts.replaceChildren(...alerts.map((words) => html("span", {}, [icon(LEVELS.bad, "f"), html("b", {}, [words])])));
  }

  /** @param {Strip | null} strip */
  vitals(strip) {
    for (const one of [this.meters, this.health]) one.style.visibility = strip ? "" : "hidden";
    if (!strip) return;
    if (this.meters.childElementCount !== strip.meters.length) {
      this.meters.replaceChildren(...strip.meters.map(([kind]) => meter(kind)));
    }
    strip.meters.forEach(([, value, percent, level, hint], place) => {
      const one = this.meters.children[place];
      set(one, "title", hint);
      set(one, "class", `am-meter s-${tone(level)}`);
      setText(one?.querySelector("b"), value);
      const fill = one?.querySelector("i i");
      if (fill instanceof HTMLElement) fill.style.width = `${Math.min(100, percent ?? 0)}%`;
    });
    const words = [strip.word, strip.notes].filter(Boolean).join(" · ");
    if (this.health.title === words && this.health.className === `am-health s-${tone(strip.level)}`) return;
    this.health.className = `am-health s-${tone(strip.level)}`;
    this.health.title = words;
    this.health.replaceChildren(icon(/** @type {Record<string, string>} */ (LEVELS)[strip.level] ?? LEVELS.none, tone(strip.level)), html("b", {}, [strip.word]), strip.notes && ` · ${strip.notes}`);
  }
}

/**
 * What icons, bars and lines mean, hidden until it is asked for.
 * @param {Fixed} fixed
 */
function legendOf(fixed) {
  const states = Object.entries(fixed.icons).map(([state, outline]) => html("span", {}, [icon(outline, state), fixed.meanings[state] ?? ""]));
  const bars = Object.entries(fixed.phases).map(([kind, word]) => {
    const swatch = svg("svg", { class: "am-fig am-swatch s-r", viewBox: "0 0 18 12", width: "18", height: "12", "aria-hidden": "true" });
    const thin = kind === "q" ? 3 : kind === "t" ? 7 : 11;
    swatch.append(kind === "b" ? svg("path", { class: "b b-b", d: "M0 6h18" }) : svg("rect", { class: `b b-${kind}`, y: String(6 - thin / 2), width: "18", height: String(thin) }));
    return html("span", {}, [swatch, word]);
  });
  const lines = fixed.legend.map((words) => html("span", {}, [words]));
  const rows = [states, bars, lines].map((row) => html("div", {}, row));
  const made = html("div", { class: "am-legend", role: "group", "aria-label": "Legend" }, rows);
  made.hidden = true;
  return made;
}

/** @param {string} level */
function tone(level) {
  return /** @type {Record<string, string>} */ (TONES)[level] ?? "p";
}

/** @param {string} kind */
function meter(kind) {
  return html("div", { class: "am-meter" }, [html("span", {}, [kind]), html("b"), html("i", {}, [html("i")])]);
}

// Questions to a person: what exactly would happen, and the ways on. The first answer counts, on whatever page.
// Nothing takes the focus or has a key of its own, so that no key that was meant for the notebook agrees to anything.


/**
 * @typedef {{number: number, heading: string, rows: [string, string][], text: string, start: string,
 *   ways: [string, string, string], limit: string}} Question
 */

const CALM_MS = 700; // a click that was meant for the question before is none for this one

class Asking {
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

// The panel that a click on an agent opens, beside its card.


/**
 * @typedef {{agent: number, name: string, state: string, word: string, facts: string, headings: string[],
 *   attempts: string[][], error: string, texts: Record<string, string>, rendered: string,
 *   pictures: {src: string, label: string}[], turns: Turn[]}} Detail
 * @typedef {{heading: string, said: string, calls: Call[]}} Turn
 * @typedef {{number: number, tool: string, status: string, facts: string, arguments: [string, string][],
 *   texts: Record<string, string>, pictures: {src: string, label: string}[]}} Call
 */

const WIDTH = 480;
const HEIGHT = 440;
const LABELS = { retry: "Retry", skip: "Skip" };
const HINTS = { retry: "Run this agent again, and those skipped because of it", skip: "Skip this agent, and those that need its answer" };

class Panel {
  /**
   * @param {HTMLElement} root its container
   * @param {{icons: Record<string, string>, verbs: string[]}} fixed
   * @param {(verb: string, agent: number) => void} press
   */
  constructor(root, { icons, verbs }, press) {
    this.root = root;
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
    for (const made of this.element.querySelectorAll("[data-verb]:not([data-verb='close'])")) made.remove();
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
    if (detail.agent !== this.agent || this.element.hidden) return;
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

// Cards, edges, the critical path, and the bars under the graph.


/**
 * @typedef {Bar} Bar
 * @typedef {Axis} Axis
 * @typedef {Card} Card
 * @typedef {Plot} Plot
 * @typedef {{title: string, icons: Record<string, string>, words: Record<string, string>, pills: Record<string, number>,
 *   names: string[], tasks: number[], edges: [number, number, number][], plot?: Plot, groups?: Group[],
 *   meanings: Record<string, string>, legend: string[], phases: Record<string, string>, rows?: number[], verbs: string[]}} Fixed
 */

class Cards {
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

class Times {
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

// Groups of agents: a ring per group, and a cell per agent of the open group.


/**
 * @typedef {Tally} Tally
 * @typedef {Fixed} Fixed
 */

const MOST_NAMED = 8;

class Rings {
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
class Drawer {
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

// The live view. The kernel draws the picture once; the page applies changes, once per frame.
// Texts of agents and models are set as text, never as markup.


/**
 * @typedef {Delta} Delta
 * @typedef {Fixed} Fixed
 * @typedef {Detail} Detail
 * @typedef {{svg: string, states: string, full: Delta, fixed: Fixed, top: string, still: Object<string, string>,
 *   questions: Question[]}} State
 * @typedef {{get<K extends keyof State>(key: K): State[K], send(content: object): void,
 *   on(event: string, callback: (content: any) => void): void,
 *   off(event: string, callback: (content: any) => void): void,
 *   widget_manager?: Manager}} Model
 */

const SPEAK_EVERY_MS = 4000;
const ASK_EVERY_MS = 1000;
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
  figure.style.minWidth = `${figure.getAttribute("viewBox")?.split(" ")[2] ?? 0}px`;
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
  const panel = new Panel(root, fixed, (verb, agent) => model.send({ cmd: verb, agent }));
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
  const onMessage = (/** @type {{delta?: Delta, detail?: Detail, fault?: {number: number, text: string}}} */ content) => {
    if (content.delta) paint.ask(content.delta);
    if (content.detail) panel.show(content.detail);
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
