"""A shared page in Chromium: its button loads Python, and what it then says is what `run.whatif` says here."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from agent_magic.api import Run
from agent_magic.declare import dollars, seconds
from agent_magic.machine import PYODIDE_VERSION
from tests.browser.test_accessible import RULES
from tests.lab import FLAGS, PATIENCE_S
from tests.show.story import finished_run, layered_plan

pytestmark = [pytest.mark.browser, pytest.mark.slow]
OPUS = "claude-opus-5-5"


@pytest.fixture(scope="session")
def pyodide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of npm's `pyodide`; without npm the test is skipped, and fails where CI=true."""
    if shutil.which("npm") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no npm: Pyodide comes from its registry")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "pack", "--silent", "--prefer-offline", f"pyodide@{PYODIDE_VERSION}"]
    packed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    with tarfile.open(folder / packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder that never changes, as a distribution of files does."""

    extensions_map: ClassVar[dict[str, str]] = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        """Let browsers keep everything, and pages of others load it."""
        self.send_header("Cache-Control", "public, max-age=31536000, immutable")
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Generator[str]:
    """Serve a folder on the loopback address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def browsing(chromium: str, folder: Path) -> Generator[tuple[BrowserContext, Page, list[str]]]:
    """A browser with a cache on disk, its page, and what went wrong in that or left the machine."""
    with sync_playwright() as pw:
        flags = {"executable_path": chromium, "headless": True, "args": list(FLAGS)}
        context = pw.chromium.launch_persistent_context(folder, viewport={"width": 1100, "height": 900}, **flags)
        page, wrong = context.new_page(), list[str]()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda one: wrong.append(one.text) if one.type in {"error", "warning"} else None)
        page.on("pageerror", lambda one: wrong.append(str(one)))
        local = ("http://127.0.0.1:", "file:", "blob:", "data:")
        page.on("request", lambda one: None if one.url.startswith(local) else wrong.append(one.url))
        try:
            yield context, page, wrong
        finally:
            context.close()


def asked(page: Page, address: str) -> str:
    """Open a page, press its button by keyboard, and return the numbers that are shown first."""
    page.goto(address)
    page.get_by_role("button", name="Ask this run").focus()
    page.keyboard.press("Enter")
    page.locator(".am-explore-line").wait_for()
    return page.locator(".am-explore-line").inner_text()


def changed(page: Page, before: str) -> str:
    """Wait until other numbers are shown, and return them."""
    page.wait_for_function("(old) => document.querySelector('.am-explore-line').innerText !== old", arg=before)
    return page.locator(".am-explore-line").inner_text()


def forecast(run: Run, **asked: Any) -> tuple[str, str]:
    """Return the seconds and dollars of one scenario, as this Python says them."""
    row = run.whatif(**asked).iloc[0]
    return seconds(row["wall_s"]), dollars(row["cost_usd"])


def test_the_button_answers_what_this_python_answers(tmp_path: Path, chromium: str, pyodide: Path) -> None:
    """The numbers are those of `run.whatif` as controls move; nothing leaves the machine; it works again offline."""
    run, folder = Run(finished_run(layered_plan(12, 4))), tmp_path / "site"
    folder.mkdir()
    (folder / "pyodide").symlink_to(pyodide)
    assert run.to_page(folder / "run.html", python="pyodide/").stat().st_size < 500_000
    with served(folder) as address, browsing(chromium, tmp_path / "profile") as (context, page, wrong):
        first = asked(page, f"{address}run.html")
        assert all(part in first for part in forecast(run, schedule="ready"))
        page.get_by_label("concurrency").fill("2")
        two = changed(page, first)
        assert all(part in two for part in forecast(run, concurrency=2))
        page.get_by_label("model", exact=True).select_option(OPUS)
        opus = changed(page, two)
        assert all(part in opus for part in forecast(run, concurrency=2, model=OPUS))
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        options: Any = {"runOnly": {"type": "tag", "values": RULES}}
        assert [] == axe.run(page, context="#am-ask", options=options).response["violations"]
        assert [] == wrong
        context.set_offline(True)
        assert first == asked(page, f"{address}run.html")


def test_a_page_from_a_file_says_what_it_cannot(tmp_path: Path, chromium: str, pyodide: Path) -> None:
    """Opened from the disk it loads from an address, and says why it cannot load from the folder beside it."""
    run = Run(finished_run(layered_plan(5, 2)))
    with served(pyodide.parent) as address, browsing(chromium, tmp_path / "profile") as (_, page, _):
        run.to_page(tmp_path / "folder.html", python="pyodide/")
        page.goto((tmp_path / "folder.html").as_uri())
        page.get_by_role("button", name="Ask this run").click()
        page.get_by_text("Serve both: python -m http.server").wait_for()
        assert page.get_by_role("button", name="Ask this run").is_enabled()
        run.to_page(tmp_path / "address.html", python=f"{address}package")
        assert forecast(run, schedule="ready")[1] in asked(page, (tmp_path / "address.html").as_uri())
