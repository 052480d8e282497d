"""Simulated answers in Markdown: sections by the agent's role, filled with the topic and key phrases of the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, groupby
from random import Random

LOOK_AT = 6_000
HEAD, TAIL = 240, 160
FALLBACK = "the question at hand"
_STOPPERS = (
    "and or but so because which that who whose what when where why how if then than while using as with without by is "
    "are was were be been being will would can could should may might must has have had do does did please given"
)
_FUNCTION_WORDS = (
    "a an the this that these those it its they them their there here he she we our us you your i me my in into onto "
    "of for from to at about over under between through during before after above below up down out off again only own "
    "same too very just also not no nor any some all each every both few more most other another such well better best "
    "good first second third last next one two three four five six seven eight nine ten many much via within across "
    "against around like now still yet even rather let's don't know"
)
# Words of instructions, personas and headings.
_INSTRUCTIONS = (
    "article essay story blog poem letter answer reply respond response write draft explain describe discuss compare "
    "evaluate assess analyse analyze analysis analyst research researcher investigate review reviewer critique critic "
    "summarise summarize summary synthesise synthesize synthesis combine merge plan planner propose recommend question "
    "recommendation list give provide produce create make find identify consider think pick choose decide tell show "
    "name outline expert specialist assistant helpful senior careful act role task questions topic text word words "
    "sentence sentences paragraph paragraphs bullet bullets point points short brief briefly concise clear clearly "
    "simple detailed exactly format markdown json style input inputs output result results use need want keep focus "
    "include sum work help thing things way ways important main key example examples option options finding findings "
    "risk risks reason reasons report agent agents classify label step steps"
)
_LABELLED = re.compile(r"^\W*(?:topic|subject|question|theme)\W*:\W*([^\n,;.?]{3,120})", re.IGNORECASE | re.MULTILINE)
_PERSONA = re.compile(
    r"^\W*(?:you(?:'re| are| know| have| work)|act as|as an?)\b[^.!?\n]*", re.IGNORECASE | re.MULTILINE
)
_LEADS = "about|on|for|regarding|concerning|of|between"
_LEAD = re.compile(
    rf"\b(?:{_LEADS})((?: (?!(?:{_LEADS}|{_STOPPERS.replace(' ', '|')})\b)[\w'’+#/-]+){{1,10}})",
    re.IGNORECASE,
)
_WORD_OR_BREAK = re.compile(r"[^\W_](?:[\w'’+#-]|[./](?=\w))*|[^\w\s]|\n")
_BLOCK = re.compile(r"<([A-Za-z][\w-]{0,40})[^<>]{0,80}>(.*?)</\1>", re.DOTALL)
_BOLD = re.compile(r"\*\*(.{3,40}?)\*\*")
STOP_WORDS = frozenset(f"{_STOPPERS} {_FUNCTION_WORDS} {_LEADS.replace('|', ' ')}".split())
COMMON = STOP_WORDS | frozenset(_INSTRUCTIONS.split())


@dataclass(frozen=True, slots=True)
class Subject:
    """The topic, key phrases and instruction of a prompt."""

    topic: str
    terms: tuple[str, ...]
    instruction: str
    prompt: str = ""

    @property
    def request(self) -> str:
        """Beginning and end of the instruction; the middle may be quoted material."""
        text = self.instruction
        return text if len(text) < HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"


def subject_of(prompt: str, system: str) -> Subject:
    """Return the topic: a line `Topic: ...`, else what follows `for` or `about`, else the first key phrase."""
    instruction = _BLOCK.sub("\n", prompt).strip()
    blocks = {name.replace("_", " ").replace("-", " "): text[:LOOK_AT] for name, text in _BLOCK.findall(prompt)}
    told, rest = instruction, ""
    if len(instruction) > HEAD + TAIL:
        told, _, rest = instruction.partition("\n\n")
    told, quoted = told[:LOOK_AT], "\n".join((*blocks.values(), rest[:LOOK_AT]))
    label = _LABELLED.search(prompt[:LOOK_AT])
    topic = label[1].strip() if label else None
    for text in (_PERSONA.sub("", told), quoted):
        topic = topic or _lead(text) or next(iter(_phrases(text)), None)
    topic = topic or _lead(told) or _lead(system) or FALLBACK
    terms = dict.fromkeys((*_phrases(told), *(blocks if len(blocks) > 1 else ()), *map(_inside, _BOLD.findall(quoted))))
    return Subject(topic, tuple(term for term in terms if term.lower() not in topic.lower()), instruction, prompt)


def _lead(text: str) -> str | None:
    for found in _LEAD.finditer(text):
        words = found[1].split()
        while words and words[-1].lower() in STOP_WORDS:
            words.pop()
        if any(word.lower() not in COMMON for word in words):
            return " ".join(words)
    return None


def _phrases(text: str) -> list[str]:
    """Return the distinct runs of up to three uncommon words."""
    words = _WORD_OR_BREAK.findall(text)
    runs = (
        list(run)
        for telling, run in groupby(words, lambda word: word[0].isalpha() and word.lower() not in COMMON)
        if telling
    )
    return list(dict.fromkeys(" ".join(run) for run in runs if len(run) <= 3 and len("".join(run)) > 2))


def _inside(phrase: str) -> str:
    """Lower the case for mid-sentence use; a name keeps its capital."""
    return phrase[:1].lower() + phrase[1:] if " " in phrase and phrase[1:].islower() else phrase


MOST_WORDS = 3
MOST_OPTIONS = 20
SENTIMENTS = ("positive", "negative", "neutral", "mixed")
_ONE_WORD = r"\b(?:in |with |using )?(?:exactly |only )?(?:one|a single|1)[ -](?:word|label|category|tag|letter)\b"
_ONE_OF = (
    r"\b(?:answer|reply|respond|return|output|say|write|choose|pick|select|give|print|classify|label|with|only|exactly)"
    r"\b[^.\n]{0,40}?\b(?:one of|either)\b"
)
_CLASSIFY = r"\b(?:classify|categori[sz]e|label|tag)\b[^.:\n]{0,60}?\b(?:as|into)\b"
_YES_NO = r"(?=\byes(?: or |/)no\b)"
_CUE = re.compile(f"{_ONE_WORD}|{_ONE_OF}|{_CLASSIFY}|{_YES_NO}", re.IGNORECASE)
_EXPLAINED = re.compile(r"\b(?:explain|justify|(?:and|say) why|(?:a|your|the) reasons?|json)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_NUMBER = re.compile(
    r"\b(?:one|a single|only a|only the|just a|just the|a) (?:number|integer|digit|score)\b", re.IGNORECASE
)
_RANGE = re.compile(r"\b(\d{1,6})\s*(?:to|and|through|-|–)\s*(\d{1,6})\b")
_QUOTED = re.compile(r"[\"'`“]([^\"'`”\n]{1,40})[\"'`”]")
_OR_LIST = re.compile(r"\b[\w-]+(?:, ?[\w-]+)*,? or [\w-]+|\b[\w-]+(?: ?[/|] ?[\w-]+)+")
_SEPARATOR = re.compile(r"[,;/|]|\bor\b|\band\b", re.IGNORECASE)
MOST_TERMS = 10
# `{topic}`, `{a}` and `{b}` are phrases of the prompt, in places where number and article do not matter. An opening
# starts with a preposition and the topic, so that the next agent of a chain finds the same topic in it.
OPENINGS = (
    "For {topic}, the sensible default is what keeps later changes cheap, unless a hard constraint lies with {a}.",
    "On {topic}, there is no single right answer, but a reasonable order in which to decide: {a} first, then {b}.",
    "For {topic}, three considerations dominate: {a}, {b}, and how easily a decision can be undone.",
    "On {topic}, the material falls into a few strands; two of them, {a} and {b}, come up again and again.",
)
SENTENCES = (
    "Opinions on {a} differ for understandable reasons: those who begin see the effort, those who stay see the result.",
    "More attention to {a} usually means less freedom in {b}; few settings allow both to be maximised.",
    "Speed at the beginning is often paid back later as maintenance, and with {a} that can still be worth it.",
    "A narrow scope makes {a} manageable, at the price of leaving some needs unserved for a while.",
    "It is tempting to call {a} a detail; in daily work it decides whether people come back.",
    "The order of decisions matters more than their number, above all between {a} and {b}.",
    "Much of this depends on {a}; where the situation is unusual, the order of the points changes too.",
    "It helps to imagine a year from now: the choices around {a} that age well can be explained in a sentence.",
    "Begin with the simplest arrangement that covers {a}, and leave {b} for a second round.",
    "Go ahead on one condition: a check of {a} on a small scale, before anything depends on it.",
    "Keep both ways open for now, test {a} and {b} side by side, and commit once a difference shows.",
)
REMARKS = (
    "worth settling early, because later choices build on it",
    "easy to underestimate; a small trial would show how much work it is",
    "mostly a matter of who maintains the result",
    "less urgent than it looks, since it can be changed later at little cost",
    "often mentioned and seldom measured; treat strong statements with care",
    "sensitive to assumptions, which should be written down",
    "asserted rather than shown; one worked example would help",
    "an indirect cost that tends to show up late",
)
STEPS = (
    "Write down what the work on {topic} must achieve, in two or three sentences.",
    "List the constraints around {a}; mark those that cannot move.",
    "Collect two or three comparable cases and read how they dealt with {a}.",
    "Try the part that concerns {a} in the smallest form that can fail.",
    "Look at {b} on the same terms, and compare.",
    "Agree on one sign that would make you stop, and set a date to look at {b} again.",
)
TERMS = ("setup effort", "day-to-day use", "long-term upkeep", "first-hand experience", "recent changes", "training")
# The sections of an answer, by words in the system prompt or the instruction. `*` has bullets, `#` numbered steps.
USUAL = "What speaks for it*, Trade-offs, Recommendation, Next steps#"
SECTIONS = {
    r"synthes|combin|merg|consolidat|integrat|reconcil|final answer": (
        "What each contribution adds*, Where the views differ, Combined recommendation, Next steps#"
    ),
    r"critic|critiqu|review|weakness|flaw|judg|challeng|evaluat": "Remarks*, What would make it stronger#, Verdict",
    r"\bplan|roadmap|milestone|schedul": "What to settle first*, Steps#, Risks",
    r"research|investigat|survey|background|literature|sources": "Findings*, Open questions, Where to look next#",
    r"writer|\bdraft|article|essay|story|blog|letter": "How it began, In practice, What matters*, What remains",
}
_BRIEF = re.compile(r"\b(brief|briefly|short|shortly|concise|one paragraph|tl;?dr|in a few words)\b", re.IGNORECASE)
_ONE_SENTENCE = re.compile(r"\b(?:one|a single|1)[ -](?:sentence|line)\b", re.IGNORECASE)


class Pen:
    """A template repeats only after all others of its pool."""

    def __init__(self, subject: Subject, rng: Random) -> None:
        self._topic = subject.topic
        self._rng = rng
        self._terms = cycle([*subject.terms[:MOST_TERMS], *TERMS[len(subject.terms) :]])
        self._left: dict[tuple[str, ...], list[str]] = {}

    def draw(self, pool: tuple[str, ...]) -> str:
        left = self._left.get(pool) or self._rng.sample(pool, len(pool))
        self._left[pool] = left
        template = left.pop()
        a = next(self._terms) if "{a}" in template else ""
        b = next(self._terms) if "{b}" in template else ""
        return template.format(topic=self._topic, a=a, b=b)

    def section(self, title: str) -> str:
        """Write a section in the form that the mark of its title sets."""
        write_form = {"*": self.points, "#": self.steps}.get(title[-1], self.paragraph)
        return f"## {title.rstrip('*#')}\n\n{write_form()}"

    def paragraph(self) -> str:
        return " ".join(self.draw(SENTENCES) for _ in range(self._rng.randint(2, 4)))

    def points(self) -> str:
        count = self._rng.randint(3, 5)
        return "\n".join(f"- **{capital(next(self._terms))}**: {self.draw(REMARKS)}." for _ in range(count))

    def steps(self) -> str:
        return "\n".join(f"{index}. {self.draw(STEPS)}" for index in range(1, self._rng.randint(4, 6)))


def write(subject: Subject, system: str, rng: Random) -> str:
    pen, asked = Pen(subject, rng), subject.request
    if short := _choose(subject, rng):
        return short
    opening = pen.draw(OPENINGS)
    if _ONE_SENTENCE.search(asked):
        return opening
    if _BRIEF.search(asked):
        return f"{opening} {pen.draw(SENTENCES)}"
    sections = _sections(asked, system).split(", ")
    return "\n\n".join((opening, *map(pen.section, sections)))


def more(subject: Subject, rng: Random) -> str:
    pen = Pen(subject, rng)
    return f"## More on {rng.choice((*subject.terms, subject.topic))}\n\n{pen.paragraph()}\n\n{pen.points()}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sections(asked: str, system: str) -> str:
    for text in (system, asked):
        hits = [(hit.start(), words) for words in SECTIONS if (hit := re.search(words, text, re.IGNORECASE))]
        if hits:
            return SECTIONS[min(hits)[1]]
    return USUAL


def _choose(subject: Subject, rng: Random) -> str | None:
    asked = subject.request
    if _EXPLAINED.search(asked):
        return None
    lines = [line for line in _SENTENCE_END.split(asked) if line.strip()]
    for index, line in enumerate(lines):
        if cue := _CUE.search(line):
            # The cue becomes a colon: the options stand after it, else in the sentence before or after.
            near = (f"{line[: cue.start()]}: {line[cue.end() :]}", *lines[:index][-1:], *lines[index + 1 : index + 2])
            for text in near:
                if options := options_of(text):
                    return rng.choice(options)
            if re.search(_ONE_WORD, line, re.IGNORECASE):
                return rng.choice(_words(asked, subject))
    if _NUMBER.search(asked) and (bounds := _RANGE.search(asked)):
        return str(rng.randint(*sorted(map(int, bounds.groups()))))
    return None


def options_of(text: str) -> list[str]:
    """Return the short phrases that a text offers as options."""
    for items in _candidates(text):
        options = [option for item in items if (option := item.strip(" \t.?!:\"'`“”<>[]{}"))]
        if 1 < len(options) <= MOST_OPTIONS and all(len(option.split()) <= MOST_WORDS for option in options):
            return list(dict.fromkeys(options))
    return []


def _candidates(text: str) -> Iterator[list[str]]:
    yield _QUOTED.findall(text)
    for part in re.split(r"[:()]", text)[1:]:
        yield _SEPARATOR.split(part)
    for found in _OR_LIST.finditer(text):
        yield _SEPARATOR.split(found[0])


def _words(asked: str, subject: Subject) -> tuple[str, ...]:
    if re.search("sentiment|mood|tone", asked, re.IGNORECASE):
        return SENTIMENTS
    return tuple(term.split()[-1] for term in (*subject.terms, subject.topic))
