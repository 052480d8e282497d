// The header: progress, facts, the health of the API, and the buttons.

import { button, html, icon, set, setText, svg } from "./dom.js";
import { seconds } from "./pure.js";

/**
 * @typedef {import("./pure.js").Head} Head
 * @typedef {import("./pure.js").Strip} Strip
 */

const LEVELS = { ok: "M2 6.5l2.8 2.9L10 3", warn: "M6 1.8L11 10.4H1zM6 5v2.4M6 8.7v.2", bad: "M3.8 1.5h4.4l2.3 2.3v4.4l-2.3 2.3H3.8L1.5 8.2V3.8zM4.4 4.4l3.2 3.2M7.6 4.4L4.4 7.6", none: "M3 6h6" };
const TONES = { ok: "s", warn: "m", bad: "f", none: "p" };

export class Header {
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
    set(this.bar, "aria-valuenow", String(Math.round(100 * head.progress.reduce((sum, [state, share]) => sum + ("sm".includes(state) ? share : 0), 0))));
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
 * @param {import("./cards.js").Fixed} fixed
 */
export function legendOf(fixed) {
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
