"""The scan before sharing: what keys look like, where they are found, and that none is shown whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.record.secret_scan import not_allowed, scan_file, scan_text, secrets_of

# Written in pieces, so that no file of ours holds anything of a key's shape.
KEYS = [
    "sk-" + "ant-api03-" + "A1b2C3d4E5f6G7h8",
    "sk-" + "proj-" + "abcdefghij0123456789ABCD",
    "AI" + "za" + "SyA1234567890abcdefghijklmnopqrstuv",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "gh" + "p_" + "a" * 36,
    "github" + "_pat_" + "a1" * 15,
    "hf" + "_" + "a" * 34,
    "xox" + "b-123456789012-abcdef",
    "gsk" + "_" + "a1" * 16,
    "Bea" + "rer abcdefghijklmnopqrstuvwxyz",
    "Authorization: bea" + "rer " + "x1" * 20,
    "-----BEGIN RSA PRIV" + "ATE KEY-----",
    "postgres://me:" + "hunter22@" + "host/db",
    "x-api-key" + "': 'abcdefghijklmnop'",
    "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]
HARMLESS = [
    "Ask for sk-learn, or a task-" + "b" * 30,
    "The bearer of this letter",
    "https://example.com/a:b@c",
    "def api_key(): pass",
    "risk-averse",
    "x" * 200,
    "-----BEGIN PUBLIC KEY-----",
    "5d41402abc4b2a76b9719d911017c592",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "text before {} and after", "{!r}"])
def test_keys_are_found_and_not_shown(key, around):
    """By their shape, in any text; the finding shows a third of it at most."""
    found = list(scan_text(around.format(key), "here", {}))
    assert found
    assert all("here" == one.where for one in found)
    assert key not in " ".join(map(str, found))
    assert key[8:20] not in " ".join(map(str, found))


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_are_none(text):
    """Words, addresses, hashes."""
    assert [] == list(scan_text(text, "here", {}))


def test_secrets_of_the_environment_are_found_whatever_their_shape():
    """By the name of the variable, or because the value looks random."""
    secrets = secrets_of(
        {
            "MY_PASSWORD": "correct horse",
            "DEPLOY": "q8Zx7Lk2Vb9Nm4Pw1Rt6",
            "PATH": "/usr/bin:/bin",
            "SSH_AUTH_SOCK": "/tmp/agent",
            "LANG": "en_GB.UTF-8",
            "TOKEN": "short",
            "TOKEN_LIMIT": "200000000",
            "HOSTNAME": "some-machine-with-a-long-name",
        }
    )
    assert {"correct horse": "MY_PASSWORD", "q8Zx7Lk2Vb9Nm4Pw1Rt6": "DEPLOY"} == secrets
    (found,) = scan_text("it is correct horse", "here", secrets)
    assert ("the value of $MY_PASSWORD", False) == (found.what, "correct horse" in str(found))


NOTEBOOK = {
    "source": lambda key: {"cells": [{"cell_type": "code", "source": ["a = 1\n", f"k = '{key}'"], "outputs": []}]},
    "split": lambda key: {"cells": [{"source": [f"k = '{key[:9]}", key[9:]], "outputs": []}]},
    "output": lambda key: {"cells": [{"source": "", "outputs": [{"data": {"text/html": [f"<b>{key}</b>"]}}]}]},
    "stream": lambda key: {"cells": [{"source": "", "outputs": [{"output_type": "stream", "text": key}]}]},
    "traceback": lambda key: {
        "cells": [{"source": "", "outputs": [{"traceback": ["x\n", f"\x1b[0;31m{key}\x1b[0m"]}]}]
    },
    "cell metadata": lambda key: {"cells": [{"source": "", "metadata": {"tags": [key]}}]},
    "attachment": lambda key: {"cells": [{"source": "", "attachments": {"a": {"text/plain": key}}}]},
    "widgets": lambda key: {"cells": [], "metadata": {"widgets": {"state": {"x": {"state": {"value": key}}}}}},
    "a name": lambda key: {"cells": [], "metadata": {key: 1}},
}


@pytest.mark.parametrize("place", NOTEBOOK)
def test_every_place_of_a_notebook_is_looked_at(place):
    """Cells, outputs, tracebacks, widget state, metadata; by shape, and by value however JSON writes it."""
    odd = 'p"ä\\ss\nword'
    for key, secrets in ((KEYS[0], {}), (odd, {odd: "MINE"})):
        content = json.dumps(NOTEBOOK[place](key)).encode()
        found = not_allowed(scan_file("n.ipynb", content, secrets))
        assert found, (place, key)
        assert all(one.where.startswith("n.ipynb, ") for one in found)
        assert [] == not_allowed(found, {one.mark for one in found})


def test_lines_are_named():
    """In texts and in JSON lines."""
    (found,) = scan_file("x.py", f"a\nb = '{KEYS[0]}'\n".encode(), {})
    assert "x.py, line 2" == found.where
    (found,) = scan_file("x.jsonl", f'{{"a": 1}}\n{{"request": {{"prompt": "{KEYS[0]}"}}}}\n'.encode(), {})
    assert "x.jsonl, line 2, request, prompt" == found.where


@given(st.binary(max_size=500))
def test_any_bytes_can_be_scanned(data):
    """Nothing is raised, whatever a file holds."""
    list(scan_file("x", data, {"abcdefgh": "A"}))
