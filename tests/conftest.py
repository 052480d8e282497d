"""What every test may ask for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("no_clock", deadline=None)  # a test never asserts a wall-clock time
settings.load_profile("no_clock")

# Read when Jupyter's libraries are first imported: their new folders (the old ones warn), and the kernel of the
# environment that runs the tests before any that the user has registered.
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
# No test writes into the ledger of whoever runs it.
os.environ.setdefault("AGENT_MAGIC_LEDGER", ":memory:")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


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
