"""A real JupyterLab in a headless Chromium, for the few tests of what people see.

    with lab(folder, chromium) as jupyter:
        jupyter.open("a.ipynb")
        jupyter.run_all()
        jupyter.page.wait_for_selector(".am-live")

Everything of it lives in a folder of its own: no settings, kernels or news of the user's come in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from playwright.sync_api import ConsoleMessage, Page, Request

PATIENCE_S = 150
REPO = Path(__file__).resolve().parent.parent
TOKEN = "t"
APPS = {"lab": ("jupyterlab", "LabApp"), "notebook": ("notebook", "JupyterNotebookApp")}
"""The module that starts a front end, and the class of its settings."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
HIDDEN = ["--hide-scrollbars"]
"""What Playwright adds to hide scroll bars. People on Linux and Windows see them, and they take 15 px."""
_IDLE = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  return context?.isReady && context.session?.kernel?.status === 'idle';
}"""
_EMPTY_LAB = """() => 'jupyterapp' in window && window.jupyterapp.name === 'JupyterLab'
  && [...window.jupyterapp.shell.widgets('main')].every((one) => !one.context)"""
_CLOSE = "() => [...(window.jupyterapp?.shell.widgets('main') ?? [])].forEach((one) => one.dispose())"


@dataclass
class Lab:
    """A running JupyterLab and the page that is open in it.

    Attributes:
        url: Its address, without a path.
        app: `lab`, or `notebook` for Jupyter Notebook 7.
        errors: What was logged as an error, or thrown, in the page.
        outside: Addresses outside this machine that the page asked for.
    """

    url: str
    page: Page
    root: Path
    app: str = "lab"
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def open(self, notebook: str, *, kernel: bool = True) -> None:
        """Open a notebook and wait until it is shown, and until its kernel is idle.

        The page is loaded anew, unless it is a JupyterLab in which nothing is open: a load takes ten seconds.
        """
        place = (
            f"lab/tree/{notebook}?token={TOKEN}&reset" if self.app == "lab" else f"notebooks/{notebook}?token={TOKEN}"
        )
        if self.page.evaluate(_EMPTY_LAB):
            self.command("docmanager:open", {"path": notebook})
        else:
            self.page.goto(f"{self.url}/{place}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=PATIENCE_S * 1000)
        if kernel:
            self.wait_idle()

    def play(self, notebook: str, cells: Sequence[str]) -> Page:
        """Write a notebook of code cells, open it, start all of them, and return the page."""
        write_notebook(self.root / notebook, cells)
        self.open(notebook)
        self.run_all()
        return self.page

    def wait_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.wait_for_function(_IDLE, timeout=PATIENCE_S * 1000)

    def run_all(self) -> None:
        """Start all cells, and do not wait for them.

        The menu's Run All races with the start of the session, this does not.
        """
        self.command("notebook:run-all-cells", wait=False)

    def save(self) -> None:
        """Save the notebook."""
        self.command("docmanager:save")

    def close_all(self) -> None:
        """Close what is open, saved or not, and shut every kernel down."""
        self.page.evaluate(_CLOSE)
        self.end_kernels()

    def end_kernels(self) -> None:
        """Shut every kernel down. A notebook that is opened then knows only what was saved."""
        sessions = json.loads(self._ask("GET", "/api/sessions"))
        for session in sessions:
            self._ask("DELETE", f"/api/sessions/{session['id']}")

    def _ask(self, method: str, path: str) -> bytes:
        headers = {"Authorization": f"token {TOKEN}"}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.read()

    def theme(self, name: str) -> None:
        """Choose a theme, such as `JupyterLab Dark`."""
        self.command("apputils:change-theme", {"theme": name})
        self.page.wait_for_selector(f'[data-jp-theme-name="{name}"]', state="attached", timeout=PATIENCE_S * 1000)

    def command(self, name: str, arguments: dict[str, Any] | None = None, *, wait: bool = True) -> None:
        """Execute a command of JupyterLab."""
        call = "([name, args]) => window.jupyterapp.commands.execute(name, args)"
        if not wait:
            call = "([name, args]) => { window.jupyterapp.commands.execute(name, args); }"
        self.page.evaluate(call, [name, arguments or {}])


@contextlib.contextmanager
def lab(root: Path, chromium: str, *, size: tuple[int, int] = (1300, 1000), app: str = "lab") -> Iterator[Lab]:
    """Start JupyterLab on a folder, and a page in Chromium.

    Args:
        root: The folder it serves.
        chromium: The path of the browser.
        size: Width and height of the page.
        app: `lab`, or `notebook` for Jupyter Notebook 7.
    """
    with serving(root, app) as url, page_of(url, root, chromium, size=size, app=app) as made:
        yield made


@contextlib.contextmanager
def page_of(url: str, root: Path, chromium: str, *, size: tuple[int, int], app: str = "lab") -> Iterator[Lab]:
    """Start a page in Chromium for a server that runs. No other event loop can run in this thread meanwhile."""
    with sync_playwright() as pw:
        browser = pw.chromium.launch(
            executable_path=chromium, headless=True, args=list(FLAGS), ignore_default_args=HIDDEN
        )
        try:
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.set_default_timeout(PATIENCE_S * 1000)
            made = Lab(url, page, root, app)
            _watch(made)
            yield made
        finally:
            browser.close()


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """Write a notebook of code cells."""
    code = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(cells)
    ]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": code, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")


def _watch(made: Lab) -> None:
    """Keep what must not happen: errors in the page, requests to elsewhere."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            made.errors.append(f"{message.text} {message.location}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((made.url, made.url.replace("http", "ws", 1), "data:", "blob:")):
            made.outside.append(request.url[:120])

    made.page.on("console", on_console)
    made.page.on("pageerror", lambda error: made.errors.append(str(error)))
    made.page.on("request", on_request)


@contextlib.contextmanager
def serving(root: Path, app: str = "lab") -> Iterator[str]:
    """Start JupyterLab or Jupyter Notebook on a folder; give its address."""
    with tempfile.TemporaryDirectory(prefix="lab-") as home:
        yield from _server(root, Path(home), app)


def _server(root: Path, home: Path, app: str) -> Iterator[str]:
    environment, log = _environment(home), home / "lab.log"
    for _ in range(3):  # another program may take the port before the server does
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", APPS[app][0], *_options(root, app, port)],
                env=environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if answers(f"{url}/api/status?token={TOKEN}", process):
            break
        end_server(process)
    else:
        raise RuntimeError("JupyterLab did not start:\n" + log.read_text(encoding="utf-8", errors="replace")[-2000:])
    try:
        yield url
    finally:
        end_server(process)


def _options(root: Path, app: str, port: int) -> list[str]:
    return [
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--allow-root",
        f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={root}",
        "--ServerApp.port_retries=0",
        f"--{APPS[app][1]}.expose_app_in_browser=True",
    ]


def _environment(home: Path) -> dict[str, str]:
    notices = home / "settings" / "@jupyterlab" / "apputils-extension"
    notices.mkdir(parents=True)
    quiet = json.dumps({"fetchNews": "false", "checkForUpdates": False})
    (notices / "notification.jupyterlab-settings").write_text(quiet, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


def answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers; `False` if it ended, or never does."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


def end_server(process: subprocess.Popen[bytes]) -> None:
    """End the server and its kernels, which share its session."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return
