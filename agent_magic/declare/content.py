"""Pictures and documents in prompts: `{{ fig }}`, `{{ scan }}`, `--attach report`.

An `Attachment` holds the bytes once; requests, ledgers and cassettes name them by their sha256. During rendering it
writes a mark with a random number, which passes through loops, joins and filters and which no other text can contain.
Afterwards marks become labels, `[image fig]`. A mark cut or changed by a filter is an error, and nothing is sent.
"""

from __future__ import annotations

import math
import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MOST_BYTES = 10_000_000
"""The largest picture, as base64. Source: the vendor's page on vision, like the next three."""
MOST_PX = 8000
MANY = 20
MOST_PX_OF_MANY = 2000
"""Longest edge in a request with more than `MANY` pictures."""
MOST_REQUEST_BYTES = 32_000_000
PLAIN_TEXT = "text/plain"
_START, _END = "\ufdd0", "\ufdd1"
"""Around a mark. They are no characters, so hardly any text has them."""
_WINDOW = 12
"""Digits in a row of a mark that identify its remains."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture or a document, read: `{{ name }}`, or first by `--attach name`.

    Attributes:
        media_type: Such as `image/png`, `application/pdf` or `text/plain`.
        size: Bytes.
        width, height: Pixels of a picture.
        pages: Pages of a PDF; 0 if unknown.
        data: The bytes; empty if removed from a recording.
    """

    kind: Literal["image", "document"]
    media_type: str
    sha256: str
    title: str = ""
    size: int = 0
    width: int = 0
    height: int = 0
    pages: int = 0
    data: bytes = field(default=b"", repr=False, compare=False)
    KEPT: ClassVar = ("kind", "media_type", "sha256", "title", "size", "width", "height", "pages")
    """The fields in records, which keep the bytes beside them."""

    def __str__(self) -> str:
        marks = _MARKS.get()
        return self.label if marks is None else marks.mark(self)

    def __repr__(self) -> str:
        """Return the mark as `str` does: lists in a prompt are written by `repr`."""
        return str(self) if _MARKS.get() is not None else f"Attachment({self.label}, {self.facts})"

    @property
    def facts(self) -> str:
        if self.kind == "image":
            return f"{self.width}x{self.height}"
        return f"{self.pages} pages" if self.pages > 1 else "1 page" if self.pages else f"{self.size:,} bytes"

    @property
    def label(self) -> str:
        return f"[{self.kind} {self.title}]" if self.title else f"[{self.kind}]"

    @property
    def text(self) -> str:
        """The text of a text document; empty for others."""
        return self.data.decode() if self.media_type == PLAIN_TEXT else ""

    def block(self, data: str) -> dict[str, Any]:
        kind = "text" if self.media_type == PLAIN_TEXT else "base64"
        block: dict[str, Any] = {
            "type": self.kind,
            "source": {"type": kind, "media_type": self.media_type, "data": data},
        }
        return block | {"title": self.title} if self.kind == "document" and self.title else block

    @property
    def sent_bytes(self) -> int:
        """Bytes in a request: text as it is, the rest as base64."""
        return self.size if self.media_type == PLAIN_TEXT else -(-self.size // 3) * 4


def with_bytes(files: Iterable[Attachment], file_of: Callable[[str], bytes]) -> tuple[Attachment, ...]:
    return tuple(replace(one, data=file_of(one.sha256)) for one in files)


class Placed(NamedTuple):
    """An attachment in a prompt; its label begins at `at`."""

    at: int
    attachment: Attachment


class Prompt(NamedTuple):
    """A prompt as it is sent; `shared` is the length of its context of several parts, if any."""

    text: str
    attachments: tuple[Placed, ...] = ()
    shared: int = 0


NO_PROMPT = Prompt("")


class _Marks:
    def __init__(self) -> None:
        self._nonce = ""
        self._known: list[Attachment] = []

    def mark(self, attachment: Attachment) -> str:
        self._nonce = self._nonce or "".join(secrets.choice("0123456789") for _ in range(32))
        self._known.append(attachment)
        return f"{_START}{self._nonce}{len(self._known) - 1:06d}{_END}"

    def placed(self, text: str) -> Prompt:
        """Replace marks by labels; raise `ValueError` if part of a mark is left."""
        if not self._known:
            return Prompt(text)
        parts = re.split(rf"{_START}{self._nonce}(\d{{6}}){_END}", text)
        found: list[Placed] = []
        at = 0
        for index, part in enumerate(parts):
            if index % 2:
                attachment = self._known[int(part)]
                found.append(Placed(at, attachment))
                parts[index] = attachment.label
            elif any(one in part for one in self._remains()):
                raise ValueError("a filter has changed or cut a picture or document; write it whole, {{ name }}")
            at += len(parts[index])
        return Prompt("".join(parts), tuple(found))

    def _remains(self) -> Iterator[str]:
        """Yield traces of a cut or reversed mark, which a model writes only by chance."""
        yield _START + self._nonce[:2]
        for number in (self._nonce, self._nonce[::-1]):
            yield from (number[start : start + _WINDOW] for start in range(len(number) - _WINDOW + 1))


_MARKS: ContextVar[_Marks | None] = ContextVar("agent_magic_marks", default=None)


class Marking:
    """Makes attachments write marks inside `with`; `placed` converts the text to a prompt."""

    def __enter__(self) -> _Marks:
        marks = _Marks()
        self._token = _MARKS.set(marks)
        return marks

    def __exit__(self, *_: object) -> None:
        _MARKS.reset(self._token)


def blocks_of(text: str, attachments: Sequence[Placed], shared: int = 0) -> list[str | Attachment]:
    """Return texts and attachments in sending order, cut at `shared`, so that equal contexts are equal blocks."""
    found: list[str | Attachment] = []
    end = 0
    for at, attachment in attachments:
        found += [*_cut(text, end, at, shared), attachment]
        end = at + len(attachment.label)
    found += _cut(text, end, len(text), shared)
    return [one for one in found if not isinstance(one, str) or one.strip()]


def _cut(text: str, begin: int, end: int, at: int) -> list[str]:
    return [text[begin:at], text[at:end]] if begin < at < end else [text[begin:end]]


def check_sizes(attachments: Iterable[Attachment], agent: str, text_bytes: int = 0) -> None:
    every = list(attachments)
    pictures = [one for one in every if one.kind == "image"]
    of = f" of agent {agent!r}" if agent else ""
    smaller = "Make it smaller: fig.savefig(path, dpi=100), or PIL's picture.thumbnail((1568, 1568))."
    for one in pictures:
        where = f"The picture {one.title!r}{of}"
        if one.sent_bytes > MOST_BYTES:
            size = f"{one.sent_bytes / 1e6:.1f} MB as it is sent"
            raise DeclarationError(f"{where} has {size}; at most {MOST_BYTES // 10**6} MB can be.", hint=smaller)
        if max(one.width, one.height) > MOST_PX:
            raise DeclarationError(f"{where} has {_px(one)}; at most {MOST_PX:,} an edge can be sent.", hint=smaller)
    large = [one for one in pictures if max(one.width, one.height) > MOST_PX_OF_MANY]
    if len(pictures) > MANY and large:
        message = (
            f"The prompt{of} has {len(pictures)} pictures, and {large[0].title!r} has {_px(large[0])}: with more than "
            f"{MANY} none may be longer than {MOST_PX_OF_MANY:,}."
        )
        raise DeclarationError(message, agent=agent or None, hint=f"Send {MANY} at most, or smaller ones.")
    total = text_bytes + sum(one.sent_bytes for one in every)
    if total > MOST_REQUEST_BYTES:
        biggest = max(every, key=lambda one: one.sent_bytes)
        what = f"The prompt{of}" if agent else f"The {biggest.kind} {biggest.title!r}"
        message = f"{what} has {total / 1e6:.1f} MB as it is sent, and a request 32 MB at most."
        hint = f"Leave something out, or send a part; the largest is {biggest.title!r}."
        raise DeclarationError(message, agent=agent or None, hint=hint)


LEFT_OUT = (
    f"(left out: with more than {MANY} pictures none in a conversation may be longer than {MOST_PX_OF_MANY:,} pixels, "
    "and all of it has 32 MB at most; return fewer or smaller ones)"
)
"""Replaces an attachment of a result that would make the next request invalid."""


def fitting(sent: Iterable[Attachment], more: Iterable[Attachment], text_bytes: int) -> list[bool]:
    """Return which new attachments fit in a conversation; an omitted one leaves room for the next."""
    pictures, large, total = 0, False, text_bytes
    found: list[bool] = []
    earlier = [*sent]
    for number, one in enumerate([*earlier, *more]):
        is_picture, is_large = one.kind == "image", max(one.width, one.height) > MOST_PX_OF_MANY
        fits = not (is_picture and pictures >= MANY and (large or is_large))
        fits = fits and total + one.sent_bytes <= MOST_REQUEST_BYTES
        if number >= len(earlier):
            found.append(fits)
        if fits or number < len(earlier):
            pictures, large, total = pictures + is_picture, large or (is_picture and is_large), total + one.sent_bytes
    return found


def _px(one: Attachment) -> str:
    return f"{one.width:,}x{one.height:,} pixels"


class TokenRule(NamedTuple):
    """A model's tokens of pictures, by squares of `patch_px` after scaling down, and usual and maximum per page."""

    patch_px: int
    most_px: int
    most_tokens: int
    page_tokens: tuple[int, int]

    def tokens(self, attachment: Attachment) -> tuple[int, int] | None:
        """Return likely and maximum tokens; `None` if unknown."""
        if attachment.kind == "image":
            found = self._of_picture(attachment.width, attachment.height)
            return found, found
        if not attachment.pages:
            return None
        return attachment.pages * self.page_tokens[0], attachment.pages * self.page_tokens[1]

    def _of_picture(self, width: int, height: int) -> int:
        def at(scale: float) -> int:
            return math.ceil(width * scale / self.patch_px) * math.ceil(height * scale / self.patch_px)

        most = min(1.0, self.most_px / max(width, height))
        if at(most) <= self.most_tokens:
            return at(most)
        low = 0.0
        for _ in range(40):  # the largest scale that keeps to the number of tokens
            middle = (low + most) / 2
            low, most = (middle, most) if at(middle) <= self.most_tokens else (low, middle)
        return at(low)


def tokens_of(attachments: Iterable[Attachment], rule: TokenRule | None) -> tuple[int, int]:
    # If unknown, the likely number is 0, and the maximum one per byte and per 256 pixels: more than any known rule.
    likely = most = 0
    for one in attachments:
        if one.media_type == PLAIN_TEXT:  # counted with the texts of a request
            continue
        known = None if rule is None else rule.tokens(one)
        likely += 0 if known is None else known[0]
        most += max(one.size, one.width * one.height // 256) if known is None else known[1]
    return likely, most
