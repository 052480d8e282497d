"""A server that counts, for the tests of whoever dies."""

from __future__ import annotations

import pytest

from tests.providers.paid import paid


@pytest.fixture(scope="module")
def server():
    """Return a server that counts."""
    with paid() as found:
        yield found


@pytest.fixture
def book(server):
    """Return the server with an empty book, slow to answer."""
    server.book.clear()
    server.sent = 0
    server.pieces, server.pause_s, server.piece = 40, 0.05, "word "
    return server
