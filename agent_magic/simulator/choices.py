"""Short answers: a word, an option of the prompt, or a number in its range."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from agent_magic.simulator.topic import Subject

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


def choose(subject: Subject, rng: Random) -> str | None:
    """Return the short answer that a prompt asks for, or `None`."""
    asked = subject.request
    if _EXPLAINED.search(asked):
        return None
    lines = [line for line in _SENTENCE_END.split(asked) if line.strip()]
    for place, line in enumerate(lines):
        if cue := _CUE.search(line):
            # The cue becomes a colon: the options stand after it, else in the sentence before or after.
            near = (f"{line[: cue.start()]}: {line[cue.end() :]}", *lines[:place][-1:], *lines[place + 1 : place + 2])
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
    """Return the words to choose from if the prompt offers none."""
    if re.search("sentiment|mood|tone", asked, re.IGNORECASE):
        return SENTIMENTS
    return tuple(term.split()[-1] for term in (*subject.terms, subject.topic))
