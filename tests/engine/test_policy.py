"""Policies: values that can work, and those that cannot."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import dataclasses

import pytest

from agent_magic import Policy
from agent_magic.errors import DeclarationError


def test_the_defaults():
    """Eight at once, as soon as ready, three attempts, five minutes."""
    policy = Policy()
    assert (8, "ready", 3, 300.0, "warn") == (
        policy.concurrency,
        policy.schedule,
        policy.max_attempts,
        policy.timeout_s,
        policy.on_max_tokens,
    )


WRONG = {
    "no slot": ({"concurrency": 0}, "concurrency must be an integer >= 1, got 0"),
    "half a slot": ({"concurrency": 1.5}, "concurrency must be an integer >= 1, got 1.5"),
    "a word": ({"concurrency": "8"}, "concurrency must be an integer >= 1, got '8'"),
    "true": ({"concurrency": True}, "concurrency must be an integer >= 1, got True"),
    "no attempt": ({"max_attempts": 0}, "max_attempts must be an integer >= 1, got 0"),
    "no time": ({"timeout_s": 0}, "timeout_s must be a number > 0, got 0"),
    "not a time": ({"timeout_s": float("nan")}, "timeout_s must be a number > 0, got nan"),
    "endless": ({"timeout_s": float("inf")}, "timeout_s must be a number > 0, got inf"),
    "schedule": ({"schedule": "redy"}, "Did you mean 'ready'"),
    "on_max_tokens": ({"on_max_tokens": "wran"}, "Did you mean 'warn'"),
}


@pytest.mark.parametrize(("options", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused(options, said):
    """The message names option and value, and what to give."""
    with pytest.raises(DeclarationError, match=said):
        Policy(**options)


def test_a_policy_is_a_value():
    """Equal policies are equal, and nothing of them changes."""
    assert Policy(3, "layers") == Policy(concurrency=3, schedule="layers")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().concurrency = 3
