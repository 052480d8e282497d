"""JSON answers: a document for a schema, from `output_config.format` or inferred from the prompt."""

from __future__ import annotations

import json
import re
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from agent_magic.simulator.api import Json, as_int, as_list, as_number, as_object
from agent_magic.simulator.writer import SENTENCES, SENTIMENTS, Pen, Subject, capital, options_of, subject_of

if TYPE_CHECKING:
    from random import Random

    from agent_magic.simulator.writer import Subject

MAX_DEPTH = 12
RECURSE_DEPTH = 4
"""At which a document of a recursive schema ends."""
_NUMBERED = re.compile(r'<item number="(\d+)">\n(.*?)\n</item>', re.DOTALL)
NONE = 0.15
"""Probability of omitting an optional value."""
MOST_VALUES = 2_000
"""A schema with millions would delay all other requests."""
FORMATS = {
    "date": "2026-11-{day:02}",
    "date-time": "2026-11-{day:02}T{hour:02}:00:00Z",
    "time": "{hour:02}:00:00Z",
    "duration": "P{day}D",
    "email": "{name}@example.com",
    "hostname": "{name}.example.com",
    "uri": "https://example.com/{name}",
    "ipv4": "192.0.2.{day}",
    "ipv6": "2001:db8::{day}",
    "uuid": "00000000-0000-4000-8000-0000000000{day:02}",
}
# The SDK moves the bounds that the API does not accept into the description, as in `{minimum: 1, maximum: 5}`.
_TOLD_BOUND = re.compile(r"\b(minimum|maximum)\W{1,3}(-?\d+(?:\.\d+)?)")
_WANTED = re.compile(
    r"\b(?:as|in|return|reply|respond|answer|output|with|only|valid|strict|raw|emit|give|produce)\b"
    r"(?: \w+){0,4} json\b|\bjson (?:only|object|array|list)\b",
    re.IGNORECASE,
)
_TOLD_SCHEMA = re.compile(r"\bJSON schema:\s*(?=\{)", re.IGNORECASE)
_LIST = re.compile(r"\b(?:json (?:array|list)|(?:array|list) of (?:json )?objects)\b", re.IGNORECASE)
_QUOTED_KEY = re.compile(r"[\"']([A-Za-z_][\w-]{0,40})[\"']\s*:\s*([^,}\n]*)")
_KEYS = re.compile(
    r"\b(?:keys?|fields?|properties|attributes)\b(?: (?:named|called|are|of))?\W{0,3}(.+?)(?:\.(?:\s|$)|\n\s*\n|$)",
    re.IGNORECASE | re.DOTALL,
)
_KEY = re.compile(r"[`\"'*-]*([A-Za-z_][\w-]{0,40})[`\"'*]*(?:\s*[(:]\s*([^()]*)\)?)?")
_RANGE = re.compile(r"(\d+)\s*(?:to|-|–)\s*(\d+)")
SHARE: Json = {"type": "number", "minimum": 0.0, "maximum": 1.0}
SURE, UNSURE = (0.6, 1.0), (0.2, 0.8)
"""Ranges of the stated confidence after a right and after a wrong choice."""
_KINDS = {
    r"^(?:is|has|should|can)_|^(?:valid|approved|urgent|correct|ok|done)$": {"type": "boolean"},
    r"confidence|probability|likelihood": SHARE,
    r"score|rating|stars|priority|severity|rank": {"type": "integer", "minimum": 1, "maximum": 5},
    r"count|number|amount|price|total|age|minutes|hours|days|cost|usd": {
        "type": "integer",
        "minimum": 1,
        "maximum": 90,
    },
    r"^value$": {"type": "integer", "minimum": 1, "maximum": 40},  # of an answer that is no object
    r"^(?:sentiment|tone|mood)$": {"enum": [*SENTIMENTS]},
    r"(?<![sui])s$|list$": {"type": "array", "items": {"type": "string"}},
}
"""By pattern of the key."""
CITIES = ("Berlin", "Lisbon", "Oslo", "Porto", "Riga", "Turin")
NAMES = ("ada", "ben", "chen", "dora", "emil", "fatima")
_TEXTS = {
    r"quote|excerpt|evidence|passage|snippet": "quote",
    r"summary|reason|why|explan|comment|note|description|rationale|advice|reply|answer|text": "sentence",
    r"^(?:name|author|person|customer|user|owner|assignee)$": "name",
    r"title|headline|subject": "title",
    r"^(?:to|cc|recipients?)$|e?mail": "address",
    r"^(?:city|place|location|town)$": "city",
    r"path|file": "path",
    r"expression|formula": "sum",
    r"(?:^|_)(?:id|sku|code|ticket)$": "code",
    r"^(?:url|link|page)$": "url",
}
"""By pattern of the field name. Others are a phrase of the prompt."""
_PLACE = re.compile(r"\b(?:in|for|from|to|at|of|near) ([A-Z][^\W\d_]+(?: [A-Z][^\W\d_]+)?)")
_CODE = re.compile(r"\b[A-Z][A-Z0-9]*-?\d+\b")
_LIKED = (
    r"good|great|lov\w+|happy|perfect\w*|excellent|recommend\w*|thank\w*|solid|easy|quick\w*|fast|best|"
    r"delight\w*|sturdy"
)
_DISLIKED = (
    r"bad|broke\w*|leak\w*|awful|terribl\w*|late|refund\w*|return\w*|wobbl\w*|stiff|slow\w*|poor\w*|never|worst|"
    r"disappoint\w*|scratch\w*|nois\w+|missing|damaged?|cheap\w*|stopped"
)
_TONES = {"liked": r"^(?:positive|good|happy|satisfied)$", "disliked": r"^(?:negative|bad|unhappy|angry|dissatisfied)$"}
_BETWEEN = r"^(?:mixed|neutral|ok|average|other|unclear)$"
SLIPS = 0.08
"""How often a choice is another than the prompt suggests, as a model errs."""
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def schema_of(subject: Subject, system: str) -> Json | None:
    if not (_WANTED.search(subject.request) or _WANTED.search(system)):
        return None
    text = f"{subject.instruction}\n{system}"
    keys = dict(_QUOTED_KEY.findall(text))
    if not keys and (listed := _KEYS.search(text)):
        parts = re.split(r",(?![^(]*\))|\band\b|\n|;", listed[1])
        keys = {key[1]: key[2] or "" for part in parts if (key := _KEY.match(part.strip()))}
    keys = keys or dict.fromkeys(("summary", "points", "confidence"), "")
    schema = {"type": "object", "properties": {key: _value_schema(key, hint) for key, hint in keys.items()}}
    return {"type": "array", "items": schema} if _LIST.search(text) else schema


def told_schema(text: str) -> Json | None:
    if (begin := _TOLD_SCHEMA.search(text)) is None:
        return None
    try:
        return as_object(json.JSONDecoder().raw_decode(text, begin.end())[0])
    except (ValueError, RecursionError):
        return None


def _value_schema(key: str, hint: str) -> Json:
    """Return the schema of a value, from its hint in the prompt or else its key."""
    options = options_of(f":{hint}")
    if bounds := _RANGE.search(hint):
        return {"type": "integer", "minimum": int(bounds[1]), "maximum": int(bounds[2])}
    if len(options) > 1:
        return {"enum": options}
    if hint.lstrip().startswith("["):
        return {"type": "array", "items": {"type": "string"}}
    for kind, words in {"boolean": r"\bbool|true|false", "number": r"\bfloat|number", "integer": r"\bint"}.items():
        if re.search(words, hint, re.IGNORECASE):
            return {"type": kind}
    return next((schema for words, schema in _KINDS.items() if re.search(words, key.lower())), {"type": "string"})


def fill(schema: Json, subject: Subject, rng: Random, slips: float = SLIPS, system: str = "") -> str:
    """Fill a schema with texts that suit the prompt."""
    if is_plan(schema):
        return json.dumps(write_plan(schema, subject, system, rng), ensure_ascii=False)
    if numbered := _NUMBERED.findall(subject.prompt) if _is_by_item(schema) else ():
        one = schema["properties"]["answers"]["items"]["properties"]["answer"]
        root = {**one, "$defs": schema["$defs"]} if "$defs" in schema else one
        rows = [
            {"item": int(number), "answer": _Filler(root, subject_of(text, system), rng, slips).value(one, 0)}
            for number, text in numbered
        ]
        return json.dumps({"answers": rows}, ensure_ascii=False)
    return json.dumps(_Filler(schema, subject, rng, slips).value(schema, 0), ensure_ascii=False)


def _is_by_item(schema: Json) -> bool:
    rows = as_object((as_object(schema.get("properties")) or {}).get("answers")) or {}
    fields = as_object((as_object(rows.get("items")) or {}).get("properties")) or {}
    return set(fields) == {"item", "answer"}


class _Filler:
    def __init__(self, schema: Json, subject: Subject, rng: Random, slips: float) -> None:
        self._root, self._slips = schema, slips
        self._rng = rng
        self._subject, self._pen = subject, Pen(subject, rng)
        self._phrases = cycle(rng.sample(phrases := (*subject.terms[:8], subject.topic), len(phrases)))
        self._left = MOST_VALUES
        self._sure: tuple[float, float] | None = None  # how sure it is of its choice

    def value(self, schema: Json, depth: int, name: str = "") -> JsonValue:
        self._left -= 1
        ends = depth > RECURSE_DEPTH and "$defs" in self._root
        schema = self._resolved(schema, ends=ends)
        if "const" in schema:
            return schema["const"]
        if choices := as_list(schema.get("enum")):
            return self._chosen(choices)
        kind = schema.get("type")
        if kinds := as_list(kind):
            kind = kinds[0]
        kind = kind if isinstance(kind, str) else ("object" if "properties" in schema else "string")
        if depth > MAX_DEPTH or self._left < 0 or kind == "null":
            return None
        if kind == "object":
            properties = as_object(schema.get("properties")) or {}
            found = {key: self.value(as_object(inner) or {}, depth + 1, key) for key, inner in properties.items()}
            more = as_object(schema.get("additionalProperties"))
            keys = () if properties or more is None or ends else (next(self._phrases) for _ in range(2))
            return found | {key: self.value(more or {}, depth + 1, key) for key in keys}
        if kind == "array":
            inner = as_object(schema.get("items")) or {}
            return [
                self.value(inner, depth + 1, name.removesuffix("s")) for _ in range(0 if ends else self._size(schema))
            ]
        return self._scalar(schema, kind, name.lower())

    def _chosen(self, choices: list[JsonValue]) -> JsonValue:
        """Choose the option that the prompt mentions most, or that fits its tone."""
        text, words = self._subject.instruction, [str(one).lower() for one in choices]
        said = [len(re.findall(rf"\b{re.escape(word.replace('_', ' '))}", text, re.IGNORECASE)) for word in words]
        found = [index for index, count in enumerate(said) if count == max(said)]
        tones = {
            tone: next((at for at, one in enumerate(words) if re.match(rule, one)), None)
            for tone, rule in _TONES.items()
        }
        if None not in tones.values():
            liked, disliked = (len(re.findall(rf"\b(?:{rule})\b", text, re.IGNORECASE)) for rule in (_LIKED, _DISLIKED))
            between = [at for at, one in enumerate(words) if re.match(_BETWEEN, one)]
            tone = tones["liked" if liked > disliked else "disliked"]
            found = between if (liked > 0) == (disliked > 0) and between else [tone or 0]
        if len(found) < len(choices) and self._rng.random() < self._slips:
            found = [index for index in range(len(choices)) if index not in found]
            self._sure = UNSURE
        else:
            self._sure = SURE
        return choices[self._rng.choice(found)]

    def _resolved(self, schema: Json, *, ends: bool) -> Json:
        """Resolve references, and take one of the alternatives."""
        for _ in range(MAX_DEPTH):
            alternatives = as_list(schema.get("anyOf")) or as_list(schema.get("oneOf")) or as_list(schema.get("allOf"))
            if isinstance(schema.get("$ref"), str):
                schema = self._referenced(schema["$ref"])
            elif alternatives:
                known = [as_object(each) or {} for each in alternatives]
                some = [each for each in known if each.get("type") != "null"] or known
                none = len(some) < len(known) and (self._rng.random() < NONE or ends)
                if [each.get("type") for each in some] == ["number", "string"]:  # a Decimal
                    some = some[:1]
                schema = {"type": "null"} if none else self._rng.choice(some)
            else:
                break
        return schema

    def _referenced(self, reference: str) -> Json:
        found: Json = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            found = as_object(found.get(part)) or {} if part else found
        return found

    def _size(self, schema: Json) -> int:
        most = as_int(schema.get("maxItems"))
        size = max(as_int(schema.get("minItems")) or 0, self._rng.randint(2, 4))
        return min(size, self._left + 1, size if most is None else most)

    def _scalar(self, schema: Json, kind: str, name: str) -> JsonValue:
        if kind == "boolean":
            return self._rng.random() < 0.5
        if kind in ("integer", "number"):
            like: Json = next((each for words, each in _KINDS.items() if re.search(words, name)), Json())
            low = _bound(schema, "minimum", as_number(like.get("minimum")) or (0.0 if "maximum" in like else 1.0))
            high = _bound(schema, "maximum", max(low, as_number(like.get("maximum")) or low + 4))
            step = 1.0 if kind == "integer" else 0.01
            low = max(low, _bound(schema, "exclusiveMinimum", low - step) + step)
            high = min(max(low, high), _bound(schema, "exclusiveMaximum", high + step) - step)
            low, high = self._sure if self._sure and like is SHARE and (low, high) == (0.0, 1.0) else (low, high)
            number = self._rng.uniform(low, max(low, high))
            return round(number) if kind == "integer" else round(number, 2)
        if isinstance(form := FORMATS.get(str(schema.get("format"))), str):
            return form.format(
                day=self._rng.randint(1, 28), hour=self._rng.randint(8, 18), name=self._rng.choice(NAMES)
            )
        text = self._text(next((what for words, what in _TEXTS.items() if re.search(words, name)), ""))
        fewest, most = as_int(schema.get("minLength")) or 0, as_int(schema.get("maxLength"))
        return text.ljust(min(fewest, MOST_VALUES), ".")[: len(text) + fewest if most is None else most]

    def _text(self, what: str) -> str:
        rng, said, topic = self._rng, self._subject.instruction, self._subject.topic
        sentences = [one.strip() for one in re.split(r"(?<=[.!?])\s+|\n", said) if one.strip()]
        name, word = rng.choice(NAMES), "-".join(topic.lower().split()[:2])
        if what == "sentence":
            return self._pen.draw(SENTENCES)
        if what not in _TEXTS.values():
            return capital(next(self._phrases))
        return {
            "quote": sentences[-1] if sentences else topic,
            "title": capital(topic),
            "name": name.title(),
            "address": f"{name}@example.com",
            "path": f"data/{word}.csv",
            "url": f"https://example.com/{word}",
            "city": rng.choice(_PLACE.findall(said) or CITIES),
            "code": rng.choice(_CODE.findall(said) or [f"{rng.choice('ABC')}-{rng.randint(100, 999)}"]),
            "sum": f"{rng.randint(2, 90)} * {rng.randint(2, 9)}",
        }[what]


def _bound(schema: Json, name: str, otherwise: float) -> float:
    told = {key: float(value) for key, value in _TOLD_BOUND.findall(str(schema.get("description", "")))}
    given = as_number(schema.get(name))
    return told.get(name, otherwise) if given is None else given


FEW, USUAL = 3, 7
"""Minimum agents of a plan with a join, and the default maximum."""
_GOAL = re.compile(r"(?:.*?\bgoal:)?(.*?)(?:\bThis answer cannot be used\b|\Z)", re.IGNORECASE | re.DOTALL)
_MOST = re.compile(r"\bat most (\d+) agents\b", re.IGNORECASE)
_ITEM = r"[\w'./+#-]+(?: [\w'./+#-]+){0,3}"
_LISTED = re.compile(rf"((?:{_ITEM}, )+(?:and |or )?{_ITEM})")
_REST = re.compile(r" (?:for|in|to|by|with|from)\b.*")
"""The text after a list's last part, as in `Rust and Go for a server`."""
_PAIR = re.compile(r"\b([A-Z][\w+#]*) (?:and|or|versus|vs\.?|with) ([A-Z][\w+#]*)")
_ENDINGS = (
    (
        r"\b(?:business|marketing|launch|project|go-to-market)\b",
        "planner",
        "plan",
        "Plan the steps, with a check for each.",
    ),
    (r"\b(?:write|draft|report|article|post|letter|guide|docs?)\b", "writer", "draft", "Write what was asked."),
    (r"\b(?:compare|which|choose|versus|vs)\b", "analyzer", "comparison", "Compare them point by point."),
)
_TAKEN = frozenset("result risks and or not in is if for set filter call block context include import with".split())
"""Names of the joins, and words of the template language."""
_LEADS = re.compile(
    r"^(?:compare|write|review|report|analy[sz]e|research|and|or|of|on|for|about|the|a|an|with|between|by) ",
    re.IGNORECASE,
)


def is_plan(schema: Json) -> bool:
    """Return whether it asks for agents with prompts and dependencies."""
    agents = as_object((as_object(schema.get("properties")) or {}).get("agents")) or {}
    fields = as_object((as_object(agents.get("items")) or {}).get("properties")) or {}
    return {"name", "prompt", "depends_on"} <= fields.keys()


def write_plan(schema: Json, subject: Subject, system: str, rng: Random) -> Json:
    """Write a plan: agents for the parts of the goal, their join, and a critic."""
    said = _GOAL.match(subject.instruction)
    goal = " ".join(said[1].split() if said else ()) or subject.topic
    told = _MOST.search(system)
    most = int(told[1]) if told else USUAL
    parts = _parts(goal, subject, rng)[: max(1, most - 1)]
    if most == 1:
        parts = []
    names = _names(parts)
    short = goal if len(goal) <= 160 else f"{goal[:160].rsplit(' ', 1)[0]} …"
    rows = [
        _row(name, "researcher", f"Goal: {short}\n\nGather what matters on {part}. Five points, how sure of each.")
        for name, part in zip(names, parts, strict=True)
    ]
    answers = "\n\n".join(f"{part}:\n{{{{ {name} }}}}" for name, part in zip(names, parts, strict=True))
    role, name, what = next((row[1:] for row in _ENDINGS if re.search(row[0], goal, re.IGNORECASE)), _ENDINGS[-1][1:])
    room = most - len(rows)
    if room >= FEW - 1:
        rows.append(_row(name, role, f"Goal: {short}\n\n{what}\n\n{answers}", names))
        if room >= FEW:
            rows.append(
                _row("risks", "critic", f"Name the three weakest points for this goal: {short}\n\n{answers}", names)
            )
        joined = [row for row in rows if row["name"] in (name, "risks")]
        names = [str(row["name"]) for row in joined]
        answers = "\n\n".join(f"{{{{ {one} }}}}" for one in names)
    ask = f"Goal: {short}\n\nBring this together into one answer."
    rows.append(_row("result", "synthesizer", f"{ask}\n\n{answers}" if answers else ask, names))
    agents = as_object((as_object(schema.get("properties")) or {}).get("agents")) or {}
    fields = as_object((as_object(agents.get("items")) or {}).get("properties")) or {}
    known = [*(as_list((as_object(fields.get("role")) or {}).get("enum")) or [])]
    return {
        "description": short,
        "agents": [{**row, "role": row["role"] if not known or row["role"] in known else known[0]} for row in rows],
    }


def _row(name: str, role: str, prompt: str, parents: list[str] | None = None) -> dict[str, object]:
    return {"name": name, "role": role, "prompt": prompt, "depends_on": list(parents or ()), "returns": "text"}


def _parts(goal: str, subject: Subject, rng: Random) -> list[str]:
    if found := _LISTED.search(goal):
        words = re.split(r",\s*(?:and |or )?|\s+(?:and|or)\s+", found[1])
        words = [_REST.sub("", _bare(word)) for word in words]
        return list(dict.fromkeys(word for word in words if word))
    if pair := _PAIR.search(goal):
        return [pair[1], pair[2]]
    terms = [one for one in (*subject.terms, subject.topic) if one.lower() != "goal"]
    few = terms[: rng.randint(3, 4)]
    return few if len(few) > 1 else [f"{subject.topic}: {side}" for side in ("benefits", "risks", "cost")]


def _bare(words: str) -> str:
    words = words.strip(" .")
    while _LEADS.match(words):
        words = _LEADS.sub("", words)
    return words


def _names(parts: list[str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        name = re.sub(r"\W+", "_", part.lower()).strip("_")[:24] or "part"
        name = name if name.isidentifier() else f"part_{name}"
        taken = {*found, *_TAKEN, *(row[2] for row in _ENDINGS)}
        found.append(name if name not in taken else f"on_{name}_{len(found)}")
    return found
