"""The topic of a prompt and its key phrases, found by function words alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

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
    """What a prompt is about."""

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
    """The topic is a line `Topic: ...`, else what follows `for`, `about` or the like, else the first key phrase.

    Text in tags, or after the first paragraph of a long prompt, is another agent's answer: its topic and bold phrases
    count.
    """
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
    runs = (list(run) for telling, run in groupby(words, _is_telling) if telling)
    return list(dict.fromkeys(" ".join(run) for run in runs if len(run) <= 3 and len("".join(run)) > 2))


def _inside(phrase: str) -> str:
    """Lower the case for mid-sentence use; a name keeps its capital."""
    return phrase[:1].lower() + phrase[1:] if " " in phrase and phrase[1:].islower() else phrase


def _is_telling(word: str) -> bool:
    return word[0].isalpha() and word.lower() not in COMMON
