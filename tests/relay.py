"""A relay in front of a server, in a thread of the test: it passes bytes on, and keeps the heads of the requests.

with Relay(simulator.url) as relay:
am.Claude(base_url=relay.url)
relay.heads
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import Self
from urllib.parse import urlsplit

REQUEST = re.compile(rb"(?:POST|GET) \S+ HTTP/1\.1\r\n.*?\r\n\r\n", re.DOTALL)


class Relay:
    """Listens on any free port of the loopback address.

    Args:
        url: Where to pass on to.

    Attributes:
        url: Where to ask instead.
    """

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}{self._to.path}"
        self._sent: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def heads(self) -> list[str]:
        """The heads of the requests so far."""
        return [head.decode("latin-1") for sent in self._sent for head in REQUEST.findall(bytes(sent))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection((self._to.hostname, self._to.port))
                sent = bytearray()
                self._sent.append(sent)
                threading.Thread(target=_join, args=(here, there, sent), daemon=True).start()


def _join(here: socket.socket, there: socket.socket, sent: bytearray) -> None:
    """Pass bytes on in both directions, until both have ended."""
    with here, there:
        back = threading.Thread(target=_pass_on, args=(there, here, None), daemon=True)
        back.start()
        _pass_on(here, there, sent)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket, note: bytearray | None) -> None:
    """Pass bytes on until one side closes; a reset is passed on as one."""
    try:
        while data := source.recv(65536):
            if note is not None:
                note += data
            target.sendall(data)
    except OSError:
        pass
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
