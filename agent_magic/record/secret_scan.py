"""Looks for keys in what is about to be shared. What it finds it names by place and kind, and never shows whole.

It knows the shapes of common keys, and the values of this process's environment that look like secrets, whatever their
shape. A finding that is none can be allowed by its mark, so that one false alarm opens the door for nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHAPES = {
    "an Anthropic key": r"sk-ant-[A-Za-z0-9_-]{8,}",
    "an OpenAI-style key": r"\bsk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}",
    "a Google token": r"\bya29\.[0-9A-Za-z_-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a Slack token": r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    "a provider's key": r"\b(?:gsk_|xai-|pplx-|r8_|npm_|dop_v1_|sk_live_|rk_live_|pypi-)[A-Za-z0-9_-]{20,}",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a bearer token": r"(?i:\bbearer)\s+[A-Za-z0-9._~+/-]{20,}=*",
    "a header with a key": r"(?i:x-api-key|api[-_]key)[\"']?\s*[:=]\s*[\"'][A-Za-z0-9._~+/-]{16,}[\"']",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a URL with a password": r"\b[a-z][a-z0-9+.-]*://[^\s/:@'\"{}]+:[^\s/@'\"{}]{3,}@",
}
"""What keys look like, by what they are."""
_SHAPES = {what: re.compile(shape) for what, shape in SHAPES.items()}
_TELLING = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_DENSE = re.compile(r"[A-Za-z0-9_~+/=.-]{20,}")
SHORTEST = 8
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


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of an environment that look like secrets, with the names of their variables."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        if len(value) < SHORTEST or value.startswith(("/", "~", ".")) or _is_plain(value):
            continue
        if _TELLING.search(name) or _is_dense(value):
            found[value] = name
    return found


def _is_plain(value: str) -> bool:
    return value.isdigit() or value.lower() in {"disabled", "required", "optional"}


def _is_dense(value: str) -> bool:
    """Tell whether a value looks random: long, of mixed characters, hardly any twice."""
    if not _DENSE.fullmatch(value) or "/" in value[:1] or value.count("/") > 2 or value.count(".") > 3:
        return False
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return mixed and bits >= ENTROPY_BITS


def scan_text(text: str, where: str, secrets: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what looks like a secret in a text.

    Args:
        text: The text.
        where: Its place, for the findings.
        secrets: Values that are secret, with their names; see `secrets_of`.
    """
    for value, name in secrets.items():
        if value in text:
            yield _finding(where, f"the value of ${name}", value)
    for what, shape in _SHAPES.items():
        for match in shape.finditer(text):
            if match.group() not in secrets:
                yield _finding(where, what, match.group())


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
        for number, line in enumerate(text.split("\n"), 1):
            row = _json(line)
            place = f"{name}, line {number}"
            yield from scan_data(row, place, secrets) if row is not None else scan_text(line, place, secrets)


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
