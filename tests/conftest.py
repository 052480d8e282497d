"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# A test never asserts a wall-clock time: a slow machine may also take its time to draw examples. The same examples are
# drawn every time, so that a change decides whether the tests pass, not a draw; the nightly run draws others each time.
NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", NO_CLOCK, derandomize=True, database=None)
settings.register_profile("nightly", NO_CLOCK, print_blob=True)
NIGHTLY = os.environ.get("AGENT_MAGIC_HYPOTHESIS") == "nightly"
FEW = 15
"""With `AGENT_MAGIC_HYPOTHESIS=brief` no test draws more cases: what another Python breaks, the first ones show."""
settings.load_profile("nightly" if NIGHTLY else "same")
if not NIGHTLY:
    # Hypothesis also draws the numbers and texts that it finds in whichever of our modules are loaded by then. So a new
    # module, or another order of the tests, would change the cases; there is no setting against it.
    providers._get_local_constants = lambda: providers._local_constants

# Read when Jupyter's libraries are first imported: their new folders (the old ones warn), and the kernel of the
# environment that runs the tests before any that the user has registered.
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
# Kernels with a home of their own share what Graphviz was compiled to, two seconds of CPU each.
os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
# No test writes into the ledger of whoever runs it.
os.environ.setdefault("AGENT_MAGIC_LEDGER", ":memory:")

DRIVING = frozenset(
    "browser kernel live package providers simulator test_api.py test_cli.py test_playing_api.py test_privacy.py"
    " test_cassette_together.py test_dying.py test_store_lease.py test_working.py test_server.py test_servers.py"
    " test_one_by_one.py test_continuing.py test_remembered_limits.py".split()
)
"""Folders and files whose tests drive kernels, browsers, processes, sockets, a registry or a real clock."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_configure(config: pytest.Config) -> None:
    """Where CI is set, the summary shows what failed at first and passed when it ran once more."""
    # What a shell starts in the background ignores Ctrl-C, and so would every terminal and process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("CI"):
        config.option.rerun_show_tracebacks = True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among a million objects that stay to the end: a sixth of the time of a collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where CI is set, what drives real things runs once more when it fails. Pure rooms and notebooks do not."""
    if odd := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"Names that differ in each process cannot be shared by workers: {odd}. Give ids=.")
    for item in items if os.environ.get("AGENT_MAGIC_HYPOTHESIS") == "brief" else ():
        test: Any = getattr(item, "obj", None)
        test = getattr(test, "__func__", test)  # of a method
        if drawn := getattr(test, "_hypothesis_internal_use_settings", None):
            test._hypothesis_internal_use_settings = settings(drawn, max_examples=min(FEW, drawn.max_examples))
    here = Path(__file__).resolve().parent
    for item in items if os.environ.get("CI") else ():
        if item.path.is_relative_to(here) and DRIVING & {*item.path.relative_to(here).parts}:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin a second try with kernels, browsers and servers of its own: those of its module may be what broke."""
    if getattr(item, "execution_count", 1) > 1 and isinstance(item, pytest.Function):
        for made in chain(*item._fixtureinfo.name2fixturedefs.values()):
            if made.scope in {"module", "class"}:
                made.finish(item._request)  # pyright: ignore[reportArgumentType] - it takes any request


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have counted with `record_property`, which passes unseen where they pass.

    The rounds of one test are one line: counts are added up, of times there are the median and the worst.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for report in chain(*terminalreporter.stats.values()):
        if getattr(report, "when", "") == "call" and report.user_properties:
            counted = found.setdefault(report.nodeid.partition("[")[0], {})
            for name, value in (("rounds", 1), *report.user_properties):
                counted.setdefault(name, []).append(value)
    if found:
        terminalreporter.section("counted")
    for test, counted in found.items():
        terminalreporter.line(test)
        for name, values in counted.items():
            times = f"{median(values):.3f}, at most {max(values):.3f}"
            terminalreporter.line(f"  {name}: {sum(values):,}" if isinstance(values[0], int) else f"  {name}: {times}")


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout under test."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's own key out of every test: a test can then spend nothing."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium. Without one the test is skipped, and fails where CI=true: there it must run."""
    wanted = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, (wanted,) if wanted else BROWSERS)), None)
    if found:
        return found
    missing = (
        f"CHROMIUM={wanted!r} is not a program"
        if wanted
        else "no Chromium found: apt-get install chromium, or set CHROMIUM to the path of a Chromium or Chrome"
    )
    if os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)
