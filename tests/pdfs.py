"""PDFs for tests."""

from __future__ import annotations

import io

from pypdf import PdfWriter


def pages(count: int, *, revised: int = 0, more: bytes = b"") -> bytes:
    """A PDF with so many empty pages, of which some were turned and saved once more behind the first version."""
    writer = PdfWriter()
    for _ in range(count):
        writer.add_blank_page(100, 100)
    first = io.BytesIO()
    writer.write(first)
    if not revised:
        return first.getvalue() + more
    again = PdfWriter(first, incremental=True)
    for page in again.pages[:revised]:
        page.rotate(90)
    second = io.BytesIO()
    again.write(second)
    return second.getvalue()
