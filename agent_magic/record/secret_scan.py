"""A scan for secrets before data is shared; prints, errors and tools' results are masked by the same rules.

A secret is recognised by its shape (`secret_shapes.toml`), by its name, such as the value of a header or option whose
name says key or password, or by its value, if it is one of this process's environment: also in base64, in hex, and
split by line breaks or invisible characters. Passwords need not look random, others must.

The table is our own: detect-secrets 1.5 knows half of these kinds by shape, finds thousands of "secrets" in the
gallery by entropy, and brings five packages.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
import string
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHAPES_FILE = Path(__file__).with_name("secret_shapes.toml")
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_AFTER_A_NAME = re.compile(
    r"""(?P<rest>[\w-]{0,24})
    (?: (?P<close>["'`\\\])]{0,8}) \s{0,4}
        (?P<sign> :\s{0,3}[&*A-Za-z_][&*\w.\[\]|\ ]{0,30}=(?![=\s]*(?:\n|\Z))\s{0,6}
              (?:[\w.]{1,40}\((?:\w{1,20}\s?=\s?)?(?=["']))?
          | ["',\]}]{0,3}(?:[\s,]{1,40}["']?[\w-]{1,30}["']?\s{0,2}[:=]\s{0,2}["'][^"'\n<>{}]{0,60}["'],?){0,3}
              [\s{]{0,40}["']?\b(?:value|content|default|val)["']?\s{0,2}[:=]  # beside its name
          | :\s{0,3}[|>][+-]?\s{1,20} | :\s{1,40}-\s{1,4}  # of YAML, in the next line
          | :?\s{0,4}</[\w:-]{1,20}>:?\s{0,40}(?:<[\w:-]{1,20}(?:\s[^<>]{0,200})?>\s{0,20}){0,3}(?!<)  # an element
          | (?:\s[\w:-]{1,30}=["'][^"'\n<>]{0,200}["']){1,5}\s?>(?!<)  # of an element with attributes
          | (?:\.[\w-]{1,24}){1,6}["'],(?=\s{0,4}["'])  # in a longer name
          | [:=]\s{0,4}\{\s{0,9}["']?[\w.@/-]{1,40}["']?\s{0,3}(?::|=>?)(?=\s{0,4}["'])  # of several by name
          | [:=]\s{0,4}<<[-~]?["']?\w{1,20}["']?\n\s{0,20}  # below
          | \s(?:provided|given|supplied|passed):
          | :\*\* | \s\[(?:None|\*{1,30}\w{0,8})\]:  # bold, or a prompt with its default
          | \s(?:string|String|str|text)\s?=\s?(?=["'])  # with its type
          | (?:\.\w{1,30}){1,3}\(\s?(?=["'])  # a method's
          | \s?<<<
          | (?:=>|->|<-|\?\?|\?=|:=|={1,3}|[:>?\uff1a\uff1d]|%3D|\b(?:is|ist|was|or)\b:?|\|\|
              |\|\s{0,20}(?=[^\s|]{6,200}\s{0,20}\|))
            (?:\s{0,3}\(\s{0,4}["'][^"'\n]{0,80}["']\s{0,4},\s{0,4}(?=["'])  # a pair, a call, a list
               | \s{0,3}[\w.\[\]]{0,40}[(]\s{0,9}(?:\w{1,20}\s?=\s?)?(?=[bfru]{0,2}["']) | \s{0,3}\[\s{0,4}(?=["']))?
          | (?<=["']),(?=\s{0,4}["']) | \((?:\w{1,20}\s?=\s?)?(?=[bfru]{0,2}["'])
        ) (?:\s{0,40}(?=[bfru]{0,2}\\{0,8}["'])|[ \t]{0,40})
      | (?P<prompt>(?:\s{1,4}(?:for|of|from|to)\b[^:\n]{0,80})(?:\sis)?:\s{1,6})
      | (?P<space>[ \t]{1,40}) )
    (?: (?i:bearer|basic|token|apikey|digest|plain) \s{1,3} )?
    (?: !![a-z]{1,9}\s | &\w{1,20}\s | <!\[CDATA\[ )?
    (?: [frbuFRBU]{0,2} \\{0,8} (?P<quote>["'`]) (?:(?P=quote){2}\s{0,40})? )?""",
    re.VERBOSE,
)
"""Text between a telling word and the value: the rest of the name, quotes, a sign or a blank."""
_HEADING = re.compile(r"[|\"']?[\w -]{1,40}[\"']?(?:[\t,;|][\"' ]?[\w -]{0,40}[\"']?){1,40}")
_BOX = str.maketrans("\u2502\u2506\u2503", "|||")
"""The lines between the cells of a printed table."""
_ALIGNED_HEADING = re.compile(r" {2,}[A-Za-z_][\w-]{0,40}(?: +[A-Za-z_][\w-]{0,40}){0,40}")
"""The first line of a printed pandas frame: names alone, after the room of the index."""
_INSERT = re.compile(r"\((?P<names>[^()]{1,400})\)\s{0,9}(?i:values)\s{0,9}\((?P<values>[^()]{1,2000})\)")
_ITEM = re.compile(r"\s*'?([^',]+)'?\s*(?:,|\Z)")
_RULE = re.compile(r"(?:[-=]{2,200}(?: {1,9}|\Z)){2,40}")
_ELEMENT = re.compile(
    r"<(?P<tag>table|tr)\b|<t[hd]\b[^<>]{0,200}>\s{0,20}(?:<\w{1,10}(?:\s[^<>]{0,200})?>\s{0,20}){0,2}(?P<value>[^<\s]*)"
)
_CELL = re.compile(r"\S+")
_NEXT_IN_A_LIST = re.compile(r"""["']\s{0,4},\s{0,4}["']""")
_CONNECTION = re.compile(r"[^;\"'\n]{1,400}")
"""A value of a text such as `Server=x;Password=y;`."""
_BEFORE_A_NAME = re.compile(r"(?:\b(?i:api|secret|access|private) )?[\w.$-]{0,48}\Z")
_QUOTED = {mark: re.compile(rf"[^{mark}\n\\]{{1,4000}}") for mark in "\"'`"}
_BARE = re.compile(r"[^\s\"'`,;&<>(){}\[\]\\|#]{1,4000}")
_LAST = re.compile(
    r"(?=[^\s<]{0,40}\d)(?=[^\s<]{0,40}[A-Za-z])[^\s\"'`<>(){}\[\]$][^\s\"'`<>]{7,60}(?=\s*(?:\n|\Z)|</)"
)
"""A value to the end of its line or element, with signs that end another one."""
_BRACKETED = re.compile(
    r"(?=[^\s]{0,60}[A-Za-z])[^\s\"'`<>$,;|\\](?:[^\s,;|<>\\`&]|&(?![\w.-]+=)){5,60}"
    r"(?=\s*(?:\n|\Z)|\s+(?:\#|[\w.-]+=)|</)"
)
"""The same with brackets or quotes inside; a comment or the next name may follow."""
_BRACKETED_IN_A_COMMAND = re.compile(
    r"(?=[^\s]{0,60}[A-Za-z])[^\s\"'`<>$,;|\\&](?:[^\s,;|<>\\`&]){5,60}(?=\s|[;&|]|\Z)"
)
"""The same behind the `NAME=` of a shell, where a command or an operator may follow."""
_CALL = re.compile(
    r"(?P<head>[A-Za-z_][\w.:>-]*)"
    r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|[?!]?\.\w+)*(?:[!?)\]}:]*|[(\[{])"
)
"""A call, or an item of a list or dict, in most languages."""
_PATTERN = re.compile(r"[aA]-[zZfF]|0-9|\.[*+]|\{[A-Za-z_.]{2,40}\}|[\w)]\+[\"']|==|\[\]|\(\)")
"""A part of a regular expression, a template or an expression."""
_HEADER = re.compile(r"[^\n\"'\\]{1,4000}")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
PLAIN = frozenset({"disabled", "required", "optional"})
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|(?:None|True|False)\b.*")
_PATH = re.compile(r"~?(?:/[\w. -]+){2,}/?|[A-Za-z]:\\.*")
_SEGMENT = re.compile(r"[A-Za-z0-9]+")
_WORDLIKE = re.compile(r"[A-Za-z]?[a-z]*\d*|[A-Z]+\d*|\d+[a-z]+|\d+[A-Z]+")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE64 = re.compile(r"[A-Za-z0-9+/]{30,}={0,2}")
_HEX_IN_PARTS = re.compile(r"[0-9a-f-]{20,}|[0-9A-F-]{20,}")
_HEX = re.compile(r"[0-9a-fA-F]{16,128}")
_PHRASE = re.compile(r"\s*[a-z]{3,8}(?:[\s,]+[a-z]{3,8}){11,23}\s*")
_IN_FOURS = re.compile(r"[a-z]{4}(?: [a-z]{4}){3}")
"""Passwords for one application, as mail providers give them."""
_TELLING = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_PASSWORDS = re.compile(r"PASSW|PASSPHRASE", re.IGNORECASE)
_DENSE = re.compile(r"[A-Za-z0-9_~+/=.-]{20,}")
_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_AROUND_A_BREAK = " \t\r\"'+\\#>"
"""Around a line break within a text: quotes, a plus sign, a backslash."""
SHORTEST = 8
SHORTEST_PASSWORD = 6
"""For a password named by its variable or URL part, if it is no word."""
SHORT_NAME = 5
"""Names up to this length also occur within other words."""
SHORTEST_RANDOM = 12
"""For a secret recognised by its name."""
ENTROPY_BITS = 3.5
"""Per character of a long word of the environment; English has 2.5 to 3."""
HEAD = 4


class Finding(NamedTuple):
    """A probable secret.

    Attributes:
        where: The place, such as `cell 3, output 1, text/plain`.
        shown: Its first characters.
        mark: Eight characters that identify it, for `--allow`.
    """

    where: str
    what: str
    shown: str
    mark: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.shown}, mark {self.mark})"


def secrets_of(environment: Mapping[str, str], *, named: bool = False) -> dict[str, str]:
    """Return the variables of an environment that look secret, names by value."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        for password in map(unquote, _PASSWORD.findall(value)):
            if len(password) >= SHORTEST_PASSWORD and not password.isalpha():
                found[password] = name
        short = len(value) < SHORTEST and not (_PASSWORDS.search(name) and len(value) >= SHORTEST_PASSWORD)
        if short or value.startswith(("/", "~", ".")) or value.isdigit() or value.lower() in PLAIN:
            continue
        if len(value) < SHORTEST and value.isalpha():
            continue
        if _TELLING.search(name) or (not named and _is_dense(value)):
            found[value] = name
    return found


def _is_dense(value: str) -> bool:
    if not _DENSE.fullmatch(value) or "/" in value[:1] or value.count("/") > 2 or value.count(".") > 3:
        return False
    return _is_mixed(value)


def _is_mixed(value: str) -> bool:
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return mixed and bits >= ENTROPY_BITS


@functools.lru_cache(maxsize=256)
def _forms(value: str) -> tuple[tuple[str, str], ...]:
    data = value.encode("utf-8", "surrogatepass")
    forms = {data.hex(): " in hex", data.hex().upper(): " in hex", quote(value, safe="", errors="replace"): " in a URL"}
    forms["".join(value.split())] = ""  # last: a value that a URL need not escape is that value, and no URL
    for before in range(3):  # base64 of a text in which it stands depends on the bytes before it
        encoded = base64.b64encode(bytes(before) + data).decode()[: (before + len(data)) * 8 // 6][
            -(-before * 8 // 6) :
        ]
        forms[encoded] = forms[encoded.translate(str.maketrans("+/", "-_"))] = " in base64"
    return tuple(forms.items())


class Shape(NamedTuple):
    """A row of the table of shapes.

    Attributes:
        signs: Lower-case texts of which each match has one, for a fast first search.
        pattern: Its last matching group is the secret; without groups, the whole match.
        shortest: If not 0, the group must look random and have this many characters.
        whole: True if the whole match is the secret, although only the group must look random.
        checked: True if it must end with its checksum.
        body: The part to mask, if longer.
    """

    what: str
    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    shortest: int = 0
    whole: bool = False
    checked: bool = False
    body: re.Pattern[str] | None = None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        for match in self.pattern.finditer(text):
            group = match.lastindex or 0
            if self.shortest and not is_random(match[group], self.shortest):
                continue
            if self.checked and not has_checksum(match[group]):
                continue
            if self.body is not None and (whole := self.body.match(text, match.start())):
                yield whole.span()
            else:
                yield match.span(0 if self.whole else group)


class Names(NamedTuple):
    """Names that say their value is a secret."""

    telling: re.Pattern[str]
    passwords: re.Pattern[str]
    harmless: frozenset[str]
    settings: frozenset[str]
    phrases: frozenset[str]
    placeholders: frozenset[str]


@functools.cache
def tables() -> tuple[tuple[Shape, ...], Names]:
    data = tomllib.loads(SHAPES_FILE.read_text(encoding="utf-8"))
    shapes: list[Shape] = []
    for row in data["shape"]:
        body = re.compile(row["body"], re.DOTALL) if "body" in row else None
        shortest = {"short": SHORTEST_PASSWORD, True: SHORTEST_RANDOM, False: 0}[row.get("random", False)]
        pattern, checked = re.compile(row["pattern"]), row.get("checked", False)
        shapes.append(Shape(row["what"], tuple(row["signs"]), pattern, shortest, checked=checked, body=body))
    for what, prefixes in data["prefixes"].items():
        for prefix in prefixes:
            shortest = SHORTEST_RANDOM if len(prefix) > 3 else 20  # short ones also begin ordinary words
            pattern = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(prefix)}([A-Za-z0-9_.~+/=-]{{{shortest},}})")
            shapes.append(Shape(what, (prefix.lower(),), pattern, shortest, whole=True))
    names = data["names"]
    short = [name for name in names["passwords"] if len(name) <= SHORT_NAME and name.isascii()]
    long = [name for name in names["passwords"] if name not in short]
    words = "|".join(sorted([*names["words"], *short], key=len, reverse=True))
    return tuple(shapes), Names(
        re.compile(rf"{'|'.join([*names['inside'], *long])}|(?P<word>{words})"),
        re.compile(rf"{'|'.join(long)}|(?<![a-z])(?:{'|'.join(short)})(?![a-z])"),
        *(frozenset[str](names[part]) for part in ("harmless", "settings", "phrases", "placeholders")),
    )


@functools.cache
def _by_sign() -> tuple[tuple[str, Shape], ...]:
    return tuple((sign, shape) for shape in tables()[0] for sign in shape.signs)


def is_random(value: str, shortest: int) -> bool:
    """Return whether letters and digits are mixed within words, hardly a character twice."""
    if len(value) < shortest or len(set(value)) < min(6, shortest):
        return False
    if _HEX_IN_PARTS.fullmatch(value) and any(c.isdigit() for c in value) and any(c.isalpha() for c in value):
        return True
    if len(value) >= (SHORTEST_RANDOM if value.isalnum() else 16) and _changes(value) >= len(value) * (
        0.3 if _BASE64.fullmatch(value) else 0.45
    ):
        return True
    odd = sum(len(part) for part in _SEGMENT.findall(value) if len(part) >= 4 and _is_odd(part))
    return odd >= max(shortest * 0.6, len(value) * 0.5)


def has_checksum(value: str) -> bool:
    """Return whether a word is Base58Check. Source: https://en.bitcoin.it/wiki/Base58Check_encoding."""
    number = functools.reduce(lambda sum_, one: 58 * sum_ + _BASE58.index(one), value, 0)
    data = number.to_bytes(-(-number.bit_length() // 8))
    return hashlib.sha256(hashlib.sha256(data[:-4]).digest()).digest()[:4] == data[-4:]


def _is_odd(part: str) -> bool:
    """Return whether a run of letters and digits is no word, name or number."""
    if _WORDLIKE.fullmatch(part):
        return False
    digits = any(c.isdigit() for c in part)
    return digits or (len(part) >= 20 and len(part) < 2.8 * len(_WORD.findall(part)))  # names have longer words


def _changes(value: str) -> int:
    """Count the changes between kinds of characters: few in camelCase, many in random text."""
    kinds = [(c.isdigit(), c.isupper(), c.islower()) for c in value]
    return sum(one != other for one, other in pairwise(kinds))


class _Field(NamedTuple):
    """A name and its value in an assignment, a header, JSON or a URL.

    `sign` separates them: `=`, `:`, a blank, `?` in a URL, `(` in a call. If `told`, a value need not look random.
    """

    name: str
    value: str
    sign: str = ":"
    quoted: bool = False
    told: bool = False

    def kind(self) -> str:
        names = tables()[1]
        words = [word.lower() for word in _WORD.findall(self.name)]
        is_setting = words[-1:] and words[-1] in names.settings
        if is_setting or not names.telling.search(self.name.lower()) or self._is_placeholder(names):
            return ""
        if names.phrases.intersection(words) and self.quoted and _PHRASE.fullmatch(self.value):
            return "a recovery phrase"
        if names.passwords.search(self.name.lower()):
            return "a password" if self._is_password() else ""
        if names.harmless.intersection(words) and not {"private", "secret", "access"}.intersection(words):
            return ""
        if self.sign == "?":
            enough = len(self.value) >= 6 if self.told else is_random(self.value, SHORTEST_RANDOM)
            return "a token in a URL" if enough else ""
        if self.name.lower() in {"key", "keys"} and _HEX.fullmatch(self.value):
            return ""  # the key of a row or of a cache
        if self.name.lower().endswith("cookie"):
            values = [one.partition("=")[2] or one for one in self.value.split(";")]
            return "a cookie" if any(is_random(one.strip(), SHORTEST_RANDOM) for one in values) else ""
        shortest = 20 if self.sign == " " else SHORTEST_RANDOM
        return f"the value of {_short(self.name)}" if is_random(self.value, shortest) else ""

    def _is_placeholder(self, names: Names) -> bool:
        value = self.value.strip()
        return (
            not value
            or value[0] in "$<{%*"
            or "..." in value
            or "\u2026" in value
            or "{{" in value
            or len(set(value)) == 1
            or value.lower() in names.placeholders
            or (not self.quoted and _CODE.fullmatch(value) is not None and not is_random(value, SHORTEST_RANDOM))
        )

    def _is_password(self) -> bool:
        """Return whether a value may be a password: it may be any word, so the sign before it counts."""
        value = self.value
        if self.sign == "(":
            return is_random(value, SHORTEST_RANDOM)  # of `get("DB_PASSWORD")` it is another name
        word = value.rstrip(".:!?")  # the end of a sentence
        mixed = any(c.isalpha() for c in word) and any(not c.isalpha() for c in word)
        if self.told and (self.quoted or self.sign == "="):
            return len(value) >= 4 and not value[:1].isspace()
        if any(c.isspace() for c in value):
            return self.quoted and _IN_FOURS.fullmatch(value) is not None
        if self.sign == " ":
            return is_random(value, SHORTEST) or (self.quoted and len(value) >= SHORTEST and _is_mixed(value))
        if self.quoted:
            return len(value) >= SHORTEST_PASSWORD
        if _PATH.fullmatch(value):
            return False
        mixed = mixed or _changes(word) >= max(4, len(word) * 0.2)
        return len(word) >= SHORTEST_PASSWORD and mixed


def _named(text: str, small: str, *, told: bool) -> Iterator[tuple[int, int, str]]:
    done = 0
    for match in _telling(text, small):
        if match.start() < done:
            continue
        after = _AFTER_A_NAME.match(text, match.end())
        before = _BEFORE_A_NAME.search(text, max(0, match.start() - 48), match.start())
        if after is None or before is None:
            continue
        name = text[before.start() : after.end("rest")].strip("-.$")
        mark = after["quote"]
        asked = not mark and text[max(0, before.start() - 1) : before.start()] in {"?", "&"} and after["sign"] == "="
        option = text.startswith("-", before.start()) or text[max(0, before.start() - 2) : before.start()] == "--"
        given = "=" in (after["sign"] or "") or option
        sign = (
            "?"
            if asked
            else "("
            if "(" in (after["sign"] or "")[1:]
            else "="
            if given
            else " "
            if after["space"] or after["prompt"]
            else ":"
        )
        header = sign == ":" and not mark and name.lower().endswith("cookie")
        pattern = _QUOTED[mark] if mark else _HEADER if header else _BARE
        if sign == "=" and not mark and text[max(0, before.start() - 1) : before.start()] == ";":
            pattern = _CONNECTION
        in_shell = name.isupper() and after["sign"] == "=" and not text[after.end() - 1].isspace()
        value = _bracketed(text, after.end(), in_shell=in_shell) if pattern is _BARE and sign in {"=", ":"} else None
        is_bracketed, value = value is not None, value or pattern.match(text, after.end())
        if value is None or (not mark and text[value.end() : value.end() + 1] in {"(", "["}):
            continue  # nothing, or a call: getpass(), os.environ[...]
        if pattern is _BARE and sign in {"=", ":"} and not is_bracketed:
            value = _LAST.match(text, after.end()) or value
        if kind := _Field(name, value[0], sign, bool(mark), told).kind():
            while value is not None:
                yield *value.span(), kind
                done = value.end()
                following = _NEXT_IN_A_LIST.match(text, done) if (after["sign"] or "").rstrip().endswith("[") else None
                value = following and pattern.match(text, following.end())


def _bracketed(text: str, at: int, *, in_shell: bool) -> re.Match[str] | None:
    """Find a value without quotes around it that has brackets or quotes inside."""
    found = _BRACKETED.match(text, at) or (_BRACKETED_IN_A_COMMAND.match(text, at) if in_shell else None)
    if found is None:
        return None
    value = found[0].rstrip("\"'")
    for opening, closing in ("()", "[]", "{}"):
        if value.endswith(closing) and value.count(opening) < value.count(closing):
            value = value[:-1]
    if not any(one in "()[]{}\"'#" for one in value) or _PATTERN.search(value):
        return None
    if not any(one.isdigit() for one in value) and _changes(value) < 0.4 * len(value):
        return None
    call = _CALL.fullmatch(value)
    if call is not None and not (_is_odd(call["head"]) and re.search(r"[(\[][\d.]+[)\]]", value)):
        return None
    if value[0] in "([{" and not is_random(value, SHORTEST):
        return None
    return re.compile(re.escape(value)).match(text, at)


def _columns(text: str, *, told: bool) -> Iterator[tuple[int, int, str]]:
    separator, heads, place = "", list[str](), 0
    for line in text.splitlines(keepends=True):
        if separator and not _SEGMENT.search(line):  # a rule between the rows
            place += len(line)
            continue
        cells = line.split(separator) if separator else []
        if not separator or len(heads) != len(cells):
            separator = next((one for one in "\t,;|" if one in line), "") if _HEADING.fullmatch(line.rstrip()) else ""
            heads = [one.strip("\"' \r\n") for one in line.split(separator)] if separator else []
            if sum(map(bool, heads)) < 2 or not any(map(_is_name, heads)):
                separator, heads = "", []
        for column, name in enumerate(heads if cells else ()):
            value = cells[column].strip("\"' \r\n") if column < len(cells) and _is_name(name) else ""
            if value and not value.isspace() and " " not in value and (kind := _Field(name, value, told=told).kind()):
                start = place + sum(len(one) + 1 for one in cells[:column]) + cells[column].find(value)
                yield start, start + len(value), kind
        place += len(line)


def _elements(text: str, *, told: bool) -> Iterator[tuple[int, int, str]]:
    heads, row, column = dict[int, str](), 0, 0
    for match in _ELEMENT.finditer(text):
        if match["value"] is None:
            row, column = (0 if match["tag"] == "table" else row + 1), 0
            continue
        column += 1
        if row <= 1:
            heads[column] = match["value"] if _is_name(match["value"]) else ""
        elif (name := heads.get(column)) and (kind := _Field(name, match["value"], told=told).kind()):
            yield *match.span("value"), kind


def _inserted(text: str, *, told: bool) -> Iterator[tuple[int, int, str]]:
    """Yield the values that SQL inserts into columns named like secrets."""
    for match in _INSERT.finditer(text):
        for name, value in zip(match["names"].split(","), _ITEM.finditer(text, *match.span("values")), strict=False):
            if _is_name(name) and (kind := _Field(name.strip("\"'` \n"), value[1], quoted=True, told=told).kind()):
                yield *value.span(1), kind


def _aligned(text: str, *, told: bool) -> Iterator[tuple[int, int, str]]:
    """Yield the values that end, or begin, below a heading that is named like a secret."""
    heads, place, before, is_ruled = list[re.Match[str]](), 0, "", False
    for line in text.splitlines(keepends=True):
        if _RULE.fullmatch(line.rstrip()):
            heads = heads or [one for one in _CELL.finditer(before) if _is_name(one[0])]
            is_ruled = True
        elif _ALIGNED_HEADING.fullmatch(line.rstrip()):
            heads, is_ruled = [one for one in _CELL.finditer(line) if _is_name(one[0])], False
        elif line[:1].isspace() and not (is_ruled and line.strip()):
            heads = []  # a row begins with its index
        before = line
        for one in _CELL.finditer(line) if heads else ():
            head = next((head for head in heads if head.end() == one.end() or head.start() == one.start()), None)
            if head and one[0] != head[0] and (kind := _Field(head[0], one[0], told=told).kind()):
                yield place + one.start(), place + one.end(), kind
        place += len(line)


def _is_name(text: str) -> bool:
    return len(text) <= 48 and any(True for _ in _telling(text, _in_small_letters(text)))


def _telling(text: str, small: str) -> Iterator[re.Match[str]]:
    """Yield the words that mark a secret value; they may overlap."""
    match = tables()[1].telling.search(small)
    while match is not None:
        is_one = not match["word"] or _is_word(text, *match.span())
        if is_one:
            yield match
        match = tables()[1].telling.search(small, match.end() if is_one else match.start() + 1)


def _is_word(text: str, start: int, end: int) -> bool:
    """Return whether a name has a word in it: `key` in `API_KEY`, not in `monkey`."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    begins = not before.isalpha() or (before.islower() and text[start].isupper())
    return begins and (not after.isalpha() or (after.isupper() and text[end - 1].islower()))


def _shaped(text: str, small: str) -> Iterator[tuple[int, int, str]]:
    for shape in {id(shape): shape for sign, shape in _by_sign() if sign in small}.values():
        for start, end in shape.spans(text):
            yield start, end, shape.what


def _apart(text: str, small: str, *, told: bool = False) -> Iterator[tuple[int, int, str]]:
    """Yield all secrets in their order, overlapping ones as one."""
    whole: list[tuple[int, int, str]] = []
    plain = text.translate(_BOX).replace("\\\n", "  ").replace("\\\r\n", "   ")
    for start, end, what in sorted(
        [
            *_shaped(text, small),
            *_named(plain, small, told=told),
            *_columns(plain, told=told),
            *_elements(text, told=told),
            *_inserted(text, told=told),
            *_aligned(text, told=told),
        ],
        key=lambda one: one[0],
    ):
        if whole and start < whole[-1][1]:
            first, last, kind = whole.pop()
            whole.append((first, max(last, end), kind))
        else:
            whole.append((start, end, what))
    yield from whole


def _in_small_letters(text: str) -> str:
    """Keep the length of the text."""
    small = text.lower()
    return small if len(small) == len(text) else text.translate(_ASCII_LOWER)


def scan_text(text: str, where: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    visible = _INVISIBLE.sub("", text)
    squeezed = "".join(visible.split())
    for value, name in secrets.items():
        how = next((how for form, how in _forms(value) if form in squeezed), None)
        if how is not None:
            yield _finding(where, f"the value of ${name}{how}", value)
    small = _in_small_letters(visible)
    found = {visible[start:end]: what for start, end, what in _apart(visible, small)}
    joined = "".join(line.strip(_AROUND_A_BREAK) for line in visible.split("\n"))
    if joined != visible:
        # Joined lines create new words: there it has to look random too.
        for start, end, what in _shaped(joined, _in_small_letters(joined)):
            one = joined[start:end]
            if _is_mixed(one) and not any(one in part or part in one for part in found):
                found[one] = what
    for key in sorted(found):
        if key not in secrets:
            yield _finding(where, found[key], key)


def masked(text: str, secrets: Mapping[str, str], *, told: bool = True) -> str:
    """Replace probable secrets by their kind; `told` (an error, a print) masks more than data."""
    text = replaced(text, {value: f"[the value of ${name}]" for value, name in secrets.items()})
    small = _in_small_letters(text)
    parts: list[str] = []
    done = 0
    for start, end, what in _apart(text, small, told=told):
        parts += text[done:start], f"[{what}]"
        done = end
    return "".join(parts) + text[done:] if parts else text


def replaced(text: str, secrets: Mapping[str, str]) -> str:
    """Replace secrets, however they are written."""
    for value, put in sorted(secrets.items(), key=lambda one: -len(one[0])):
        for form in {value, *(form for form, _ in _forms(value))}:
            if form in text:
                text = text.replace(form, put)
    return text


def _finding(where: str, what: str, secret: str) -> Finding:
    head = "".join(c if c.isprintable() else "?" for c in secret[: min(HEAD, len(secret) // 3)])
    mark = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return Finding(where, what, f"{head}… {len(secret)} characters", mark)


def scan_data(data: object, where: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    """Scan names, too. A list of texts counts as one text, too."""
    if isinstance(data, str):
        yield from scan_text(data, where, secrets)
    elif isinstance(data, dict):
        fields = cast("dict[str, object]", data)
        for name, value in fields.items():
            yield from scan_text(str(name), f"{where}, a name", secrets)
            yield from scan_data(value, f"{where}, {_short(name)}", secrets)
            # A thinking block is signed by the provider: no secret.
            if isinstance(value, str) and not (name == "signature" and "thinking" in fields) and value not in secrets:
                kind = _Field(name, value, quoted=True).kind()
                if kind:
                    yield _finding(f"{where}, {_short(name)}", kind, value)
    elif isinstance(data, list):
        rows = cast("list[object]", data)
        if rows and all(isinstance(one, str) for one in rows):
            yield from scan_text("".join(cast("list[str]", rows)), where, secrets)
        else:
            for number, one in enumerate(rows, 1):
                yield from scan_data(one, f"{where}, {number}", secrets)


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:39] + "…"


def scan_file(name: str, content: bytes, secrets: Mapping[str, str]) -> Iterator[Finding]:
    """Scan a notebook by its cells, JSON and JSON lines by value, text by line."""
    text = content.decode("utf-8", "replace")
    data: Any = _json(text)
    if isinstance(data, dict) and isinstance(cast("dict[str, Any]", data).get("cells"), list):
        yield from scan_notebook(cast("dict[str, Any]", data), name, secrets)
    elif data is not None:
        yield from scan_data(cast("object", data), name, secrets)
    else:
        marks: set[str] = set()
        for number, line in enumerate(text.split("\n"), 1):
            row = _json(line)
            place = f"{name}, line {number}"
            for finding in scan_data(row, place, secrets) if row is not None else scan_text(line, place, secrets):
                marks.add(finding.mark)
                yield finding
        yield from (one for one in scan_text(text, name, secrets) if one.mark not in marks)  # split between lines


def _json(text: str) -> object:
    """Return `None` for other text or a bare word."""
    try:
        data: object = json.loads(text) if text.lstrip()[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        return None
    return data


def scan_notebook(notebook: Mapping[str, Any], name: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    for number, cell in enumerate(cast("list[Any]", notebook["cells"]), 1):
        place = f"{name}, cell {number}"
        parts = cast("dict[str, Any]", cell) if isinstance(cell, dict) else {"source": cell}
        for at, output in enumerate(cast("list[object]", parts.get("outputs") or []), 1):
            yield from scan_data(output, f"{place}, output {at}", secrets)
        yield from scan_data({key: value for key, value in parts.items() if key != "outputs"}, place, secrets)
    yield from scan_data(notebook.get("metadata") or {}, f"{name}, metadata", secrets)


def not_allowed(findings: Iterable[Finding], allowed: str | Iterable[str] = ()) -> list[Finding]:
    """Remove repeats at one place, and findings allowed by their mark."""
    marks = {allowed} if isinstance(allowed, str) else set(allowed)
    once: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if finding.mark not in marks:
            once.setdefault((finding.where, finding.mark), finding)
    return list(once.values())
