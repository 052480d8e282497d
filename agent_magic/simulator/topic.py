"""Finding out what a prompt is about: its topic, its key phrases, and the named inputs it hands over.

Nothing is understood here. Words between function words are phrases; the phrase after the first `for`, `about`, `of` or
the like is taken for the topic; `<name>...</name>` blocks are inputs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent_magic.simulator.words import GENERIC, HOLLOW_BEFORE_OF, LEADS, STOPPERS, STOPWORDS

MAX_TOPIC_WORDS = 10
MAX_PHRASE_WORDS = 3
MAX_TERMS = 10
LOOK_AT = 6_000
LONG_INSTRUCTION = 700
LONGER_BY = 5
FALLBACK = "the question at hand"
COMMON = STOPWORDS | GENERIC

_BLOCK = re.compile(r"<([A-Za-z][\w-]{0,40})[^<>]{0,80}>(.*?)</\1>", re.DOTALL)
_LABELLED = re.compile(r"^\W*(?:topic|subject|question|theme)\W*:\W*([^\n]{3,120})", re.IGNORECASE | re.MULTILINE)
_CLAUSE_END = re.compile(r"[,;:!?\n()\"“”|]|\.(?:\s|$)|\s[-–—]\s")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"[^\W_](?:[\w'’+#-]|[./](?=\w))*")
_PERSONA = re.compile(r"^\W*(?:you(?:'re| are| know| have| work)|act as|as an?)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a prompt is about.

    Attributes:
        topic: A phrase that can follow `for`, as in `a public web API`.
        terms: Key phrases, the most telling first, lower case kept as written.
        sources: Names of the inputs that stand in tags.
        instruction: The prompt without those inputs.
    """

    topic: str
    terms: tuple[str, ...]
    sources: tuple[str, ...]
    instruction: str


def subject_of(prompt: str, system: str, own_words: frozenset[str] = frozenset()) -> Subject:
    """Find out what a request is about.

    Args:
        prompt: The last user message, without markers.
        system: The system prompt.
        own_words: Words that are no topic where a prompt quotes earlier answers.
    """
    blocks = _BLOCK.findall(prompt)
    sources = tuple(dict.fromkeys(name.replace("_", " ").replace("-", " ") for name, _ in blocks))
    instruction = _BLOCK.sub("\n", prompt).strip()
    told, handed = instruction[:LOOK_AT], "\n".join(text[: LOOK_AT // len(blocks)] for _, text in blocks)
    quoting = own_words if len(told) > LONG_INSTRUCTION else frozenset[str]()
    phrases = [*_ranked(told, quoting), *_ranked(handed, own_words)] or _ranked(system[:LOOK_AT])
    topic = _topic(prompt[:LOOK_AT]) or _lead_phrase(told[:LONG_INSTRUCTION]) or next(iter(phrases), None)
    chosen = topic or _lead_phrase(system[:LOOK_AT]) or FALLBACK
    terms = [each for each in dict.fromkeys(phrases) if _tells_more(each, chosen)]
    return Subject(chosen, tuple(_apart(terms))[:MAX_TERMS], sources, instruction)


def _tells_more(phrase: str, topic: str) -> bool:
    """Whether a phrase is worth naming beside the topic: it stands outside it, or is a clearly shorter part of it."""
    return phrase.lower() not in topic.lower() or (" " in phrase and len(phrase) + LONGER_BY < len(topic))


def _topic(prompt: str) -> str | None:
    """Return what a line such as `Topic: ...` names."""
    match = _LABELLED.search(prompt)
    if match is None:
        return None
    words = _CLAUSE_END.split(match[1], maxsplit=1)[0].split()[:MAX_TOPIC_WORDS]
    return " ".join(words) or None


def _lead_phrase(text: str) -> str | None:
    """Return the phrase after the first leading preposition; sentences that only describe a persona come last."""
    sentences = [each for each in _SENTENCE_END.split(text) if each.strip()]
    for sentence in sorted(sentences, key=lambda each: bool(_PERSONA.match(each))):
        for clause in _CLAUSE_END.split(sentence):
            if phrase := _after_lead(_WORD.findall(clause)):
                return phrase
    return None


def _after_lead(words: list[str]) -> str | None:
    for place, word in enumerate(words[:-1]):
        hollow = place > 0 and words[place - 1].lower() in HOLLOW_BEFORE_OF
        if word.lower() in LEADS and not hollow and (phrase := _phrase_from(words[place + 1 :])):
            return phrase
    return None


def _phrase_from(words: list[str]) -> str | None:
    taken: list[str] = []
    for word in words[:MAX_TOPIC_WORDS]:
        if word.lower() in STOPPERS:
            break
        taken.append(word)
    while taken and taken[-1].lower() in STOPWORDS:
        taken.pop()
    told = [word for word in taken if word.lower() not in COMMON]
    return " ".join(taken) if told else None


def _ranked(text: str, ignored: frozenset[str] = frozenset()) -> list[str]:
    """Return the phrases of a text: frequent ones first, then in order of appearance."""
    found = list(_phrases(text, ignored))
    tally = Counter(each.lower() for each in found)
    unique = {each.lower(): each for each in reversed(found)}
    order = {each.lower(): place for place, each in reversed(list(enumerate(found)))}
    return [unique[key] for key in sorted(unique, key=lambda key: (-min(3, tally[key]), order[key]))]


def _phrases(text: str, ignored: frozenset[str]) -> Iterator[str]:
    for clause in _CLAUSE_END.split(text):
        run: list[str] = []
        for word in [*_WORD.findall(clause), ""]:
            low = word.lower()
            if word and low not in COMMON and low not in ignored and not low[0].isdigit():
                run.append(word)
                continue
            if 0 < len(run) <= MAX_PHRASE_WORDS and len("".join(run)) > MAX_PHRASE_WORDS:
                yield " ".join(run)
            run = []


def _apart(terms: Iterable[str]) -> Iterator[str]:
    """Leave out a term that only repeats words of earlier ones."""
    seen: set[str] = set()
    for term in terms:
        words = {word.lower().rstrip("s") for word in term.split()}
        if words - seen:
            seen |= words
            yield term
