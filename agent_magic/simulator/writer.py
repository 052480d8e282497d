"""Writing an answer that reads like one: the role decides the sections, the prompt's own words fill them."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from agent_magic.simulator import kits
from agent_magic.simulator.kits import OWN_WORDS
from agent_magic.simulator.topic import Subject, subject_of

HEAD, TAIL = 240, 160
_ROLES = (
    (
        "synthesiser",
        re.compile(
            r"synthes|combin|merg|consolidat|integrat|reconcil|bring\w* together|editor in chief|final answer",
            re.IGNORECASE,
        ),
    ),
    (
        "critic",
        re.compile(
            r"critic|critiqu|review|weakness|flaw|red.?team|judg|scor|challeng|fact.?check|evaluat", re.IGNORECASE
        ),
    ),
    ("planner", re.compile(r"\bplan|roadmap|milestone|schedul|step.by.step|break\w* down", re.IGNORECASE)),
    (
        "researcher",
        re.compile(r"research|investigat|survey|background|gather|find out|literature|sources", re.IGNORECASE),
    ),
    ("analyst", re.compile(r"analy|compar|trade.?off|assess|versus|\bvs\b|pros and cons|\bdiffer", re.IGNORECASE)),
    (
        "writer",
        re.compile(
            r"writer|\bdraft|article|essay|story|blog|letter|newsletter|\bpoem|\bauthor|copywrit", re.IGNORECASE
        ),
    ),
)
_BRIEF = re.compile(r"\b(brief|briefly|short|shortly|concise|one paragraph|tl;?dr|in a few words)\b", re.IGNORECASE)
_ONE_SENTENCE = re.compile(r"\b(?:one|a single|1)[ -](?:sentence|line)\b", re.IGNORECASE)
_YES_NO = re.compile(r"\byes or no\b|\byes/no\b", re.IGNORECASE)
_ONE_WORD = re.compile(r"\b(?:one|a single|1)[ -]word\b", re.IGNORECASE)


class Pen:
    """Fills templates for one answer; draws sentences without repeating any until a pool is used up."""

    def __init__(self, role: str, subject: Subject, rng: Random) -> None:
        """Take up the pen for one answer."""
        self.role = role
        self.subject = subject
        self.rng = rng
        self._left: dict[tuple[str, ...], list[str]] = {}
        self._terms: list[str] = []

    def draw(self, pool: tuple[str, ...]) -> str:
        """Draw a template of a pool and fill it."""
        left = self._left.get(pool) or self.rng.sample(pool, len(pool))
        self._left[pool] = left
        return self.fill(left.pop())

    def term(self) -> str:
        """Return the next key phrase of the prompt, with general ones where it has few; they go round."""
        if not self._terms:
            own = list(self.subject.terms)
            usual = kits.GENERIC_TERMS[self.role][: max(0, kits.FEWEST_TERMS - len(own))]
            self._terms = [*own, *usual][::-1]
        return self._terms.pop()

    def fill(self, template: str) -> str:
        """Put phrases of the prompt into a template."""
        a = self.term() if "{a}" in template or "{A}" in template else ""
        b = self.term() if "{b}" in template else ""
        return capital(template.format(topic=self.subject.topic, a=a, b=b, A=capital(a)))

    def some(self, low: int, high: int) -> range:
        """Return so many turns, between two numbers."""
        return range(self.rng.randint(low, high))

    def chance(self, share: float) -> bool:
        """Say yes in a share of the cases."""
        return self.rng.random() < share


Section: TypeAlias = Callable[[Pen], str]


def capital(text: str) -> str:
    """Return a text with its first letter upper case, the rest as it is."""
    return text[:1].upper() + text[1:]


def write(prompt: str, system: str, rng: Random) -> str:
    """Write the answer to a prompt.

    Args:
        prompt: The last user message, without markers.
        system: The system prompt.
        rng: Decides everything that is left open; equal generators write equal answers.
    """
    subject = subject_of(prompt, system, OWN_WORDS)
    pen = Pen(role_of(subject, system), subject, rng)
    asked = _request(subject.instruction)
    if _YES_NO.search(asked):
        return rng.choice(("Yes.", "No."))
    if _ONE_WORD.search(asked):
        return capital(next(iter(subject.terms), subject.topic).split()[-1]) + "."
    if _ONE_SENTENCE.search(asked):
        return pen.draw(kits.OPENINGS[pen.role])
    if _BRIEF.search(asked):
        return f"{_opening(pen)} {pen.draw(kits.RECOMMENDATIONS)}"
    return "\n\n".join(text for section in _SECTIONS[pen.role] if (text := section(pen)))


def more(prompt: str, system: str, rng: Random) -> str:
    """Write one more part of a long answer."""
    pen = Pen("analyst", subject_of(prompt, system, OWN_WORDS), rng)
    return f"## More on {pen.term()}\n\n{pen.draw(kits.PARAGRAPHS)}\n\n{_points(pen)}\n\n{pen.draw(kits.TRADE_OFFS)}"


def role_of(subject: Subject, system: str) -> str:
    """Name the role an answer is written in: the first one that the system prompt names, else the instruction."""
    several = len(subject.sources) > 1
    for text in (system, _request(subject.instruction)):
        hits = [(hit.start(), role) for role, pattern in _ROLES if (hit := pattern.search(text))]
        if hits:
            role = min(hits)[1]
            return "synthesiser" if several and role == "analyst" else role
    return "synthesiser" if several else "adviser"


def _request(instruction: str) -> str:
    """Return the parts of an instruction that say what is wanted; what lies between may be quoted material."""
    return instruction if len(instruction) < HEAD + TAIL else f"{instruction[:HEAD]}\n{instruction[-TAIL:]}"


def _heading(title: str, section: Section) -> Section:
    def headed(pen: Pen) -> str:
        text = section(pen)
        return f"## {title}\n\n{text}" if text else ""

    return headed


def _maybe(share: float, section: Section) -> Section:
    return lambda pen: section(pen) if pen.chance(share) else ""


def _of(pool: tuple[str, ...]) -> Section:
    return lambda pen: pen.draw(pool)


def _opening(pen: Pen) -> str:
    return pen.draw(kits.OPENINGS[pen.role])


def _title(pen: Pen) -> str:
    words = pen.subject.topic.split()
    return f"# {capital(' '.join(words[1:] if words[0].lower() in ('a', 'an', 'the') and words[1:] else words))}"


def _points(pen: Pen) -> str:
    return "\n".join(f"- **{capital(pen.term())}**: {_remark(pen)}." for _ in pen.some(3, 5))


def _remark(pen: Pen) -> str:
    remark = pen.draw(kits.REMARKS[pen.role])
    return remark[:1].lower() + remark[1:]


def _numbered(pool: tuple[str, ...]) -> Section:
    def listed(pen: Pen) -> str:
        places = sorted(pen.rng.sample(range(len(pool)), pen.rng.randint(3, 5)))
        return "\n".join(f"{number}. {pen.fill(pool[place])}" for number, place in enumerate(places, 1))

    return listed


def _bullets(pool: tuple[str, ...], low: int, high: int) -> Section:
    return lambda pen: "\n".join(f"- {pen.draw(pool)}" for _ in pen.some(low, high))


def _paragraphs(pen: Pen) -> str:
    return "\n\n".join(pen.draw(kits.PARAGRAPHS) for _ in pen.some(2, 4))


def _by_source(pen: Pen) -> str:
    """Say something of each named input, or of key phrases where the inputs have no names."""
    if not pen.subject.sources:
        return _points(pen)
    names = pen.subject.sources[:6]
    return "\n".join(f"- **{capital(name)}** puts the weight on {pen.term()}: {_remark(pen)}." for name in names)


def _table(pen: Pen) -> str:
    """Compare two or three things on a few aspects, in words."""
    names = [capital(each) for each in pen.subject.sources[:3]]
    names += [capital(pen.term()) for _ in range(2 - len(names))]
    rows = [f"| Aspect | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for aspect, values in pen.rng.sample(kits.ASPECTS, pen.rng.randint(3, 4)):
        rows.append(f"| {aspect} | {' | '.join(pen.rng.choice(values) for _ in names)} |")
    return "\n".join(rows)


_RECOMMENDATION = _heading("Recommendation", _of(kits.RECOMMENDATIONS))
_NEXT_STEPS = _heading("Next steps", _numbered(kits.STEPS))
_CAVEAT = _maybe(0.5, _of(kits.CAVEATS))
_SECTIONS: dict[str, tuple[Section, ...]] = {
    "adviser": (
        _opening,
        _heading("What speaks for it", _points),
        _maybe(0.25, _heading("At a glance", _table)),
        _heading("Trade-offs", _bullets(kits.TRADE_OFFS, 1, 2)),
        _RECOMMENDATION,
        _NEXT_STEPS,
        _CAVEAT,
    ),
    "researcher": (
        _opening,
        _heading("Findings", _points),
        _maybe(0.3, _heading("Overview", _table)),
        _heading("Open questions", _bullets(kits.QUESTIONS, 2, 4)),
        _heading("Where to look next", _numbered(kits.LOOKUPS)),
        _CAVEAT,
    ),
    "analyst": (
        _opening,
        _heading("Criteria", _points),
        _maybe(0.7, _heading("Comparison", _table)),
        _heading("Trade-offs", _bullets(kits.TRADE_OFFS, 2, 3)),
        _RECOMMENDATION,
        _maybe(0.6, _NEXT_STEPS),
        _CAVEAT,
    ),
    "planner": (
        _opening,
        _heading("What to settle first", _points),
        _heading("Steps", _numbered(kits.STEPS)),
        _heading("Risks", _bullets(kits.RISKS, 2, 3)),
        _RECOMMENDATION,
        _CAVEAT,
    ),
    "writer": (_title, _opening, _paragraphs, _maybe(0.3, _points), _of(kits.CLOSINGS)),
    "critic": (
        _opening,
        _heading("Remarks", _points),
        _heading("Questions to the author", _bullets(kits.QUESTIONS, 2, 3)),
        _heading("What would make it stronger", _numbered(kits.IMPROVEMENTS)),
        _heading("Verdict", _of(kits.RECOMMENDATIONS)),
    ),
    "synthesiser": (
        _opening,
        _heading("What each contribution adds", _by_source),
        _maybe(0.5, _heading("Side by side", _table)),
        _heading("Where the views part", _bullets(kits.TRADE_OFFS, 1, 2)),
        _heading("Combined recommendation", _of(kits.RECOMMENDATIONS)),
        _NEXT_STEPS,
        _CAVEAT,
    ),
}
