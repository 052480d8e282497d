"""Reads pictures and documents: from files, from bytes, and from figures of libraries, none of which it imports."""

from __future__ import annotations

import functools
import hashlib
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from agent_magic.declare.content import PLAIN_TEXT, Attachment, check_sizes
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.validation import must_be
from agent_magic.errors import DeclarationError

PDF = "application/pdf"
MOST_PAGES = 600
"""Source: the vendor's page on PDF support."""
_LONGEST_TITLE = 80
_ENCRYPTED = re.compile(rb"/Encrypt\s+\d+\s+\d+\s+R|/Encrypt\s*<<")
_PIL_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
"""Modes that PNG supports directly."""


def image(source: str | Path | bytes, *, title: str | None = None) -> Attachment:
    """Read a picture: PNG, JPEG, WebP or GIF. Later changes of the file do not count.

    Args:
        source: The file, or its bytes.
        title: Its name in prompts and errors; default the name of the file.

    Raises:
        DeclarationError: There is no such file, or it is no picture, or too large.
    """
    data, name = _read(source, title, "image")
    return picture_of(data, name)


def pdf(source: str | Path | bytes, *, title: str | None = None) -> Attachment:
    """Read a PDF now; later changes of the file do not count.

    Args:
        source: The file, or its bytes.
        title: Its title for the model; default the name of the file.

    Raises:
        DeclarationError: There is no such file, or it is no PDF, has a password, or is too large.
    """
    data, name = _read(source, title, "pdf")
    if not data[:1024].lstrip().startswith(b"%PDF-"):
        raise DeclarationError(f"{name!r} is no PDF.", hint="am.image(path) reads pictures, am.text_file(path) text.")
    if _ENCRYPTED.search(data):
        raise DeclarationError(f"The PDF {name!r} is encrypted.", hint="Save a copy without a password, and read that.")
    pages = _pages_of(data)
    if pages > MOST_PAGES:
        hint = "Split it, and ask about each part."
        raise DeclarationError(
            f"The PDF {name!r} has {pages:,} pages; a request takes {MOST_PAGES} at most.", hint=hint
        )
    found = _attachment("document", PDF, data, name)
    check_sizes([found], "")
    return replace(found, pages=pages)


def text_file(source: str | Path | bytes, *, title: str | None = None) -> Attachment:
    """Read a file of text, such as .txt, .md or .csv, as a document. `--cite` makes the model quote from documents.

    Args:
        source: The file, or its bytes.
        title: Its title for the model; default the name of the file.

    Raises:
        DeclarationError: There is no such file, or it is empty, no UTF-8 text, or too large.
    """
    data, name = _read(source, title, "text_file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        hint = "Read it with its own encoding, and use the text: {{ text }}. Word and Excel files: save them as PDF."
        raise DeclarationError(f"{name!r} is no UTF-8 text.", hint=hint) from None
    found = text_document(text, name)
    check_sizes([found], "")
    return found


def text_document(text: str, title: str) -> Attachment:
    if not text.strip():
        raise DeclarationError(f"The document {title!r} is empty.", hint="Fill it, or leave it out.")
    return _attachment("document", PLAIN_TEXT, text.encode(), title)


def picture_of(data: bytes, title: str) -> Attachment:
    known = _picture_size(data)
    if known is None:
        hint = "It must be PNG, JPEG, WebP or GIF. Others: PIL.Image.open(path).save('new.png'); PDFs: am.pdf(path)."
        raise DeclarationError(f"{title!r} is no picture that can be sent.", hint=hint)
    media_type, width, height = known
    found = replace(_attachment("image", media_type, data, title), width=width, height=height)
    check_sizes([found], "")
    return found


def as_attachment(value: object, title: str) -> Attachment | None:
    """Return a value as an attachment, read now; `None` for other values."""
    if type(value) is Attachment:
        return value if value.title else replace(value, title=_short(title))
    kind = _library_of(type(value))
    if not kind:
        return None

    def failed(error: BaseException) -> DeclarationError:
        return DeclarationError(f"The picture {title!r} cannot be read: {reason_of(error)}.")

    return picture_of(run_user_code(lambda: _DRAWN[kind](value, title), failed), title)


def is_content(kind: type[Any]) -> bool:
    return kind is Attachment or bool(_library_of(kind))


def is_one(value: object) -> bool:
    """Return whether a value is a picture or a document."""
    return is_content(type(value))


def _read(source: str | Path | bytes, title: str | None, reader: str) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, title or ""
    if not isinstance(source, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = " A figure needs no am.image: {{ figure }}." if is_content(type(source)) else ""
        raise must_be(f"The source of am.{reader}", "a path or bytes", source, hint)
    path = Path(source).expanduser()
    try:
        return path.read_bytes(), title or path.name
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise DeclarationError(f"{str(source)!r} cannot be read: {why}.", hint="Check the path.") from None


def _attachment(kind: Literal["image", "document"], media_type: str, data: bytes, title: str) -> Attachment:
    digest = hashlib.sha256(data).hexdigest()
    return Attachment(kind, media_type, digest, _short(title), len(data), data=data)


def _short(title: str) -> str:
    line = " ".join(title.encode("utf-8", "replace").decode().split())
    return line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"


# values of other libraries, told by the module of their class


@functools.lru_cache(maxsize=512)
def _library_of(kind: type[Any]) -> str:
    """Return which library's picture a class is; empty for any other class."""
    if kind.__module__ == "builtins":
        return ""
    for one in kind.__mro__:
        library, name = str(one.__module__).partition(".")[0], one.__name__
        if (library, name) in _PICTURES:
            return _PICTURES[library, name]
    return ""


_PICTURES = {
    ("matplotlib", "Figure"): "figure",
    ("matplotlib", "Axes"): "axes",
    ("PIL", "Image"): "pil",
    ("plotly", "BaseFigure"): "plotly",
}


def _figure_png(figure: Any, title: str, axes: Any = None) -> bytes:
    """Draw a figure of matplotlib; of several axes only the given ones."""
    if len(figure.get_children()) <= 1:  # its background alone
        hint = "Draw first. After plt.show() a new figure is the current one: keep yours, fig, ax = plt.subplots()."
        raise DeclarationError(f"The figure {title!r} is empty.", hint=hint)
    area = None
    if axes is not None and len(figure.axes) > 1:
        figure.draw_without_rendering()
        area = axes.get_tightbbox().padded(4).transformed(figure.dpi_scale_trans.inverted())
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", bbox_inches=area, metadata={"Software": None})  # the same bytes each time
    return drawn.getvalue()


def _axes_png(axes: Any, title: str) -> bytes:
    if axes.figure is None:
        hint = "It was removed or cleared: draw it again."
        raise DeclarationError(f"The axes {title!r} no longer belong to a figure.", hint=hint)
    return _figure_png(axes.figure.figure, title, axes)  # the figure of a subfigure is the whole one


def _pil_png(picture: Any, title: str) -> bytes:
    if not all(picture.size):
        raise DeclarationError(f"The picture {title!r} has no pixels.", hint="Check how it was cut.")
    if picture.mode not in _PIL_MODES:  # such as CMYK and YCbCr, which no PNG holds; numbers become grey
        picture = picture.convert("L" if picture.mode[:1] in {"I", "F"} else "RGB")
    drawn = io.BytesIO()
    picture.save(drawn, format="PNG")
    return drawn.getvalue()


def _plotly_png(figure: Any, title: str) -> bytes:
    try:
        return figure.to_image(format="png")
    except (ValueError, RuntimeError) as error:  # plotly 5 and 6, and 7
        said = str(error).lower()
        lacks = "Chrome, which kaleido draws with" if "chrome" in said else "kaleido" if "kaleido" in said else ""
        if not lacks:
            raise
        get = "plotly_get_chrome, in a terminal, gets it" if "chrome" in said else "pip install kaleido"
        hint = f"{get}; or write it to a file yourself: am.image('figure.png')."
        raise DeclarationError(f"The plotly figure {title!r} cannot be drawn without {lacks}.", hint=hint) from None


_DRAWN = {"figure": _figure_png, "axes": _axes_png, "pil": _pil_png, "plotly": _plotly_png}


# by the bytes of a file


def _picture_size(data: bytes) -> tuple[str, int, int] | None:
    """Return media type, width and height from the header of a picture."""

    def number(start: int, end: int, order: Literal["big", "little"] = "little") -> int:
        return int.from_bytes(data[start:end], order)

    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        found = "image/png", number(16, 20, "big"), number(20, 24, "big")
    elif data[:6] in {b"GIF87a", b"GIF89a"}:
        found = "image/gif", number(6, 8), number(8, 10)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        found = ("image/webp", *_webp_size(data))
    elif data[:2] == b"\xff\xd8":
        found = ("image/jpeg", *_jpeg_size(data))
    else:
        return None
    return found if found[1] and found[2] else None


def _webp_size(data: bytes) -> tuple[int, int]:
    """Return width and height; source: https://developers.google.com/speed/webp/docs/riff_container."""
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the first frame header; zeros without one."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in {0xC4, 0xC8, 0xCC}:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 1 if mark == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def _pages_of(data: bytes) -> int:
    """Count the pages of the last saved revision of a PDF; 0 if it is damaged."""
    from pypdf import PdfReader

    try:
        return len(PdfReader(io.BytesIO(data)).pages)
    except Exception:  # noqa: BLE001 - on damaged files the library raises what its parser runs into
        return 0
