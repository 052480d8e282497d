"""What is typed behind options."""

from __future__ import annotations

import pytest

from agent_magic.notebook.settings import duration


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("8h", 28_800)])
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    """Seconds, or a number with s, m or h."""
    assert seconds == duration(text)


@pytest.mark.parametrize("text", ["", "h", "8d", "90ms", "1h30m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """A unit that is not known is not dropped."""
    with pytest.raises(ValueError, match="could not convert"):
        duration(text)
