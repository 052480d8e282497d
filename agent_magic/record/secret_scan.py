"""A scan for keys in what is about to be shared. A finding names the place and the kind, and never shows a key whole.

What a model is told by tools, and what a failure says, is masked by the same shapes before it is sent or kept.

It knows the shapes of common keys, and the values of this process's environment that look secret, whatever their shape:
also in base64, in hex, and split by line breaks or invisible characters. A false alarm is allowed by its mark, which
allows nothing else.

The shapes are a table of our own. A library (detect-secrets 1.5) was tried: by shape it knows half of the kinds below,
its entropy detectors find thousands of "secrets" in the gallery, and it brings five packages.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHAPES = {
    "an Anthropic key": r"sk-ant-[A-Za-z0-9_-]{8,}",
    "an OpenAI-style key": r"\bsk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}",
    "a Google token": r"\b(?:ya29\.|GOCSPX-)[0-9A-Za-z_-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "an AWS secret": r"(?i:secret_?access_?key)[\"']?\s*[:=]\s*[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "an Azure key": r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,}={0,2}",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a Databricks token": r"\bdapi[0-9a-f]{32}\b",
    "a Discord token": r"\b[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
    "a SendGrid key": r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}",
    "a Slack token": r"\b(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}",
    "a Slack webhook": r"\bhooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}",
    "a Stripe key": r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|\bwhsec_[A-Za-z0-9+/=_-]{20,}",
    "a Telegram token": r"\b\d{8,10}:AA[A-Za-z0-9_-]{32,}",
    "a provider's key": r"\b(?:gsk_|xai-|pplx-|r8_|npm_|dop_v1_|pypi-)[A-Za-z0-9_-]{20,}",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a bearer token": (
        r"(?i:\bbearer)\s+(?:[A-Za-z0-9._~+/-]{20,}|(?=[A-Za-z._~+/-]{0,19}[0-9])[A-Za-z0-9._~+/-]{8,19})=*"
    ),
    "a user and password": (
        r"(?i:\bauthorization)[\"']?\s*[:=]\s*[\"']?(?i:basic)\s+(?=[a-z]*[A-Z0-9+/])[A-Za-z0-9+/]{8,}={0,2}"
    ),
    "a header with a key": (
        r"(?i:x-api-key|api[-_]key)[\"']?\s*[:=]\s*[\"']([A-Za-z0-9._~+/-]{16,})[\"']"
        r"|(?i:\bx-api-key)\s*:\s*([A-Za-z0-9._~+/-]{16,})"
    ),
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----",
    "a URL with a password": (r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@'\"{}]{0,99}:(?![<$*])(?:[^\s/@'\"{}]{1,199}@){1,3}"),
}
"""What keys look like, by what they are. Where a shape has groups they are the key."""
_SHAPES = {what: re.compile(shape) for what, shape in SHAPES.items()}
_TOLD = {
    "a private key": re.compile(
        r"-----BEGIN ([A-Z ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
    ),
    "a password": re.compile(
        r"(?i:(?<![a-z])(?:password|passwd|passphrase|pwd))(?:[\"']?\s*[:=]\s*[\"'](?!\s)([^\n\"']{4,})[\"']"
        r"|\s*=\s*(?!None\b|True\b|False\b)([^\s\"',;&)(\[\]{}<$*]{4,}))"
    ),
    "a token in a URL": re.compile(
        r"(?i:[?&](?:access_?token|api_?key|token|key|secret|sig|signature|auth)=)([^\s&\"'#<>{}$]{6,})"
    ),
}
"""What is masked besides in what failures and prints say. In what is shared it would raise false alarms."""
_SIGNS = {
    "an Anthropic key": ("sk-ant-",),
    "an OpenAI-style key": ("sk-",),
    "a Google key": ("aiza",),
    "a Google token": ("ya29.", "gocspx-"),
    "an AWS key": ("akia", "asia"),
    "an AWS secret": ("access",),
    "an Azure key": ("accesskey=", "accountkey="),
    "a GitHub token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "a GitLab token": ("glpat-",),
    "a Hugging Face token": ("hf_",),
    "a Databricks token": ("dapi",),
    "a Discord token": (".",),
    "a SendGrid key": ("sg.",),
    "a Slack token": ("xox", "xapp-"),
    "a Slack webhook": ("hooks.slack.com",),
    "a Stripe key": ("k_live_", "k_test_", "whsec_"),
    "a Telegram token": (":aa",),
    "a provider's key": ("gsk_", "xai-", "pplx-", "r8_", "npm_", "dop_v1_", "pypi-"),
    "a JSON web token": ("eyj",),
    "a bearer token": ("bearer",),
    "a user and password": ("basic",),
    "a header with a key": ("api-key", "api_key"),
    "a private key": ("-----begin ",),
    "a URL with a password": ("://",),
    "a password": ("password", "passwd", "passphrase", "pwd"),
    "a token in a URL": ("=",),
}
"""One of these, in small letters, is in each text that has such a shape: to look for them takes far less time."""
_BY_SIGN = tuple((sign, what) for what, signs in _SIGNS.items() for sign in signs)
_TELLING = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_PASSWORDS = re.compile(r"PASSW|PASSPHRASE", re.IGNORECASE)
_DENSE = re.compile(r"[A-Za-z0-9_~+/=.-]{20,}")
_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_AROUND_A_BREAK = " \t\r\"'+\\#>"
"""What stands around a line break where a text goes on: quotes, a plus sign, a backslash."""
SHORTEST = 8
SHORTEST_PASSWORD = 6
"""Of a value that its variable, or its place in a URL, says to be a password, and that is no word."""
ENTROPY_BITS = 3.5
"""Bits a character above which a long word of the environment is taken for a secret; English has about 2.5 to 3."""
HEAD = 4


class Finding(NamedTuple):
    """Something that looks like a secret.

    Attributes:
        where: The place, such as `cell 3, output 1, text/plain`.
        what: What it looks like.
        shown: Its first characters.
        mark: Eight characters that name it, for `--allow`.
    """

    where: str
    what: str
    shown: str
    mark: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.shown}, mark {self.mark})"


def secrets_of(environment: Mapping[str, str], *, named: bool = False) -> dict[str, str]:
    """Return the values of an environment that look secret, with the names of their variables.

    Args:
        environment: The variables.
        named: Whether only those count whose names say so, and passwords in URLs: in data a value that looks random,
            such as the hash of a commit, may be what was asked for.
    """
    found: dict[str, str] = {}
    for name, value in environment.items():
        for password in map(unquote, _PASSWORD.findall(value)):
            if len(password) >= SHORTEST_PASSWORD and not password.isalpha():
                found[password] = name
        short = len(value) < SHORTEST and not (_PASSWORDS.search(name) and len(value) >= SHORTEST_PASSWORD)
        if short or value.startswith(("/", "~", ".")) or _is_plain(value):
            continue
        if len(value) < SHORTEST and value.isalpha():
            continue
        if _TELLING.search(name) or (not named and _is_dense(value)):
            found[value] = name
    return found


def _is_plain(value: str) -> bool:
    return value.isdigit() or value.lower() in {"disabled", "required", "optional"}


def _is_dense(value: str) -> bool:
    """Return whether a value looks random: long, of mixed characters, hardly any twice."""
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
    """Return how a known secret may be written, without white space, and in which way."""
    data = value.encode("utf-8", "surrogatepass")
    forms = {"".join(value.split()): "", quote(value, safe="", errors="replace"): " in a URL", data.hex(): " in hex"}
    forms[data.hex().upper()] = " in hex"
    for before in range(3):  # base64 of a text in which it stands depends on the bytes before it
        encoded = base64.b64encode(bytes(before) + data).decode()[: (before + len(data)) * 8 // 6][
            -(-before * 8 // 6) :
        ]
        forms[encoded] = forms[encoded.translate(str.maketrans("+/", "-_"))] = " in base64"
    return tuple(forms.items())


def scan_text(text: str, where: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what looks like a secret in a text."""
    visible = _INVISIBLE.sub("", text)
    squeezed = "".join(visible.split())
    for value, name in secrets.items():
        how = next((how for form, how in _forms(value) if form in squeezed), None)
        if how is not None:
            yield _finding(where, f"the value of ${name}{how}", value)
    joined = "".join(line.strip(_AROUND_A_BREAK) for line in visible.split("\n"))
    for what, shape in _SHAPES.items():
        whole = {match.group() for match in shape.finditer(visible)}
        # Joined lines make words that nobody wrote: there it has to look random too.
        split = {match.group() for match in shape.finditer(joined)} if joined != visible else set[str]()
        for key in sorted(whole | {one for one in split if _is_mixed(one) and not any(one in part for part in whole)}):
            if key not in secrets:
                yield _finding(where, what, key)


def masked(text: str, secrets: Mapping[str, str], *, told: bool = True) -> str:
    """Return a text with what looks like a secret replaced by what it is: `[the value of $DB_PASSWORD]`.

    Args:
        text: The text.
        secrets: Values that are secret, with their names; see `secrets_of`.
        told: Whether it is what a failure says, or a print: there `password=...` is taken for one, too. In data only
            what has the shape of a key is.
    """
    for value, name in sorted(secrets.items(), key=lambda one: -len(one[0])):
        for form in {value, *(form for form, _ in _forms(value))}:
            if form in text:
                text = text.replace(form, f"[the value of ${name}]")
    small = text.lower()
    signs = {what for sign, what in _BY_SIGN if sign in small}
    if not signs:
        return text
    for shapes in (_TOLD, _SHAPES) if told else (_SHAPES,):
        for what, shape in shapes.items():
            if what in signs:
                text = shape.sub(lambda found, what=what: _without_key(found, what), text)
    return text


def _without_key(found: re.Match[str], what: str) -> str:
    """Return what was found with its key masked: all of it, unless the shape says which part that is."""
    if what == "a private key" or not found.lastindex:
        return f"[{what}]"
    start, end = (at - found.start() for at in found.span(found.lastindex))
    return f"{found[0][:start]}[{what}]{found[0][end:]}"


def _finding(where: str, what: str, secret: str) -> Finding:
    head = "".join(c if c.isprintable() else "?" for c in secret[: min(HEAD, len(secret) // 3)])
    mark = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return Finding(where, what, f"{head}… {len(secret)} characters", mark)


def scan_data(data: object, where: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what looks like a secret in plain data, names included. A list of texts counts as one text, too."""
    if isinstance(data, str):
        yield from scan_text(data, where, secrets)
    elif isinstance(data, dict):
        for name, value in cast("dict[str, object]", data).items():
            yield from scan_text(str(name), f"{where}, a name", secrets)
            yield from scan_data(value, f"{where}, {_short(name)}", secrets)
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
    """Yield what looks like a secret in a file: a notebook by its cells, JSON and JSON lines by value, text by line."""
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
    """Read JSON; `None` where it is none, or a bare word."""
    try:
        data: object = json.loads(text) if text.lstrip()[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        return None
    return data


def scan_notebook(notebook: Mapping[str, Any], name: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what looks like a secret in a notebook: cells, outputs, metadata."""
    for number, cell in enumerate(cast("list[Any]", notebook["cells"]), 1):
        place = f"{name}, cell {number}"
        parts = cast("dict[str, Any]", cell) if isinstance(cell, dict) else {"source": cell}
        for at, output in enumerate(cast("list[object]", parts.get("outputs") or []), 1):
            yield from scan_data(output, f"{place}, output {at}", secrets)
        yield from scan_data({key: value for key, value in parts.items() if key != "outputs"}, place, secrets)
    yield from scan_data(notebook.get("metadata") or {}, f"{name}, metadata", secrets)


def not_allowed(findings: Iterable[Finding], allowed: str | Iterable[str] = ()) -> list[Finding]:
    """Leave out what was found twice in one place, and what is allowed by its mark."""
    marks = {allowed} if isinstance(allowed, str) else set(allowed)
    once: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if finding.mark not in marks:
            once.setdefault((finding.where, finding.mark), finding)
    return list(once.values())
