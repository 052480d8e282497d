"""The scan before sharing: what keys look like, where they are found, and that none is shown whole."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.record import masked, not_allowed, scan_text, secrets_of
from agent_magic.record.secret_scan import scan_file

ROOT = Path(__file__).resolve().parents[2]
RANDOM = "q8Zx7Lk2Vb9Nm4Pw1Rt6Yc3Hd5Fg0Js8Kq2W"
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
    "-----BEGIN PGP PRIV" + "ATE KEY BLOCK-----",
    "aws_secret_" + "access_key = " + f"{RANDOM}Ez/+",
    "x-api" + "-key: " + RANDOM[:24],
    "redis://:" + "hunter22pw" + "@cache.host:6379/0",
    "Account" + "Key=" + base64.b64encode(bytes(range(64))).decode(),
    "sk_" + "test_" + RANDOM[:24],
    "wh" + "sec_" + RANDOM[:32],
    "S" + "G." + RANDOM[:22] + "." + RANDOM + RANDOM[:7],
    "xa" + "pp-1-A01BCDEFGHI-1234567890123-" + RANDOM[:32].lower(),
    "https://hooks." + "slack.com/services/T01234567/B01234567/" + RANDOM[:24],
    "da" + "pi" + "0123456789abcdef" * 2,
    "123456789:" + "AA" + RANDOM[:33],
    "MTIzNDU2Nzg5MDEyMzQ1Njc4." + "GaBcDe." + RANDOM + "xy",
    "postgres://me:" + "pw@" + "host/db",
    "mysql://root:" + "p@ss-w0rd@" + "db:3306",
    "Bea" + "rer tok3n-9x",
    "Authorization: Ba" + "sic " + base64.b64encode(b"user:hunter22password").decode(),
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
    "postgres://me:$PASSWORD@host/db and redis://:<password>@host",
    "api_key=settings.the_key_of_the_provider",
    "Authorization: basic knowledge of the matter",
    "basic responsibilities",
    "models:\nsk-model-of-the-\nfirst-generation",
    "a Telegram number 123456789:AAbc",
    "MTIz.no.token",
    "A bearer certificate, a bearer 24hours",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "text before {} and after", "{!r}"])
def test_keys_are_found_and_not_shown(key, around):
    """In any text; the finding shows a third of it at most."""
    found = list(scan_text(around.format(key), "here", {}))
    assert found
    assert all("here" == one.where for one in found)
    assert key not in " ".join(map(str, found))
    assert key[-20:-8] not in " ".join(map(str, found))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("told", [True, False])
def test_keys_are_masked(key, told):
    """In what a failure says and in a result: no part of one is left, and the rest of the text is."""
    found = masked(f"before {key} after", {}, told=told)
    assert found.startswith("before ")
    assert told or found.endswith(" after")  # of a private key nobody sees the end
    (secret,) = re.findall("://[^:]*:(.*)@", key) or [key[len(key) // 2 :].strip("'")]
    assert secret not in found


SAID = {
    "host=db user=me password=hunter2 dbname=x": "host=db user=me password=[a password] dbname=x",
    "{'user': 'me', 'password': 'hunter 2'}": "{'user': 'me', 'password': '[a password]'}",
    'PWD="hunt;er2";Server=x': 'PWD="[a password]";Server=x',
    "GET https://x.org/v1?a=2&api_key=abc123 failed": "GET https://x.org/v1?a=2&api_key=[a token in a URL] failed",
    "-----BEGIN PRIVATE KEY-----\nMIIab\n-----END PRIVATE KEY-----\nx": "[a private key]\nx",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIab": "[a private key]",
    "x --password=aB3(xY]9!kQz": "x --password=[a password]",
    "{password=aB3(xY]9}": "{password=[a password]}",
    "PASSWORD=Tr0ub4dor&3'x\"y\n": "PASSWORD=[a password]\n",
}
NOT_SAID = [
    "password authentication failed for user me",
    "the password: it must have eight letters",
    "connect(password=None)",
    "x?key=${KEY}&page=3",
    "password=",
    "password=os.environ['DB_PASSWORD_2']",
    "password = getpass.getpass(stream)",
    "pwd=self.config[0]['pw1']",
    "password: Optional[str]",
    "key_code2: ClassVar[type[KeyCode2]]",
    "password = vault2.readSecret2(",
    "password={self.password}2",
    "password=[^&]+[a-z0-9]{8}",
    "if password==other[0]:",
    "token = tokens[17]",
    "password = (yield get(1))",
]


@pytest.mark.parametrize("text", SAID)
def test_what_a_failure_says_is_masked_more_widely(text):
    """Passwords by their names, tokens in addresses, the body of a private key."""
    assert SAID[text] == masked(text, {})


@pytest.mark.parametrize("text", ["password = secret", "{'pwd': 'a b c d'}", "https://x.org/v1?a=2&api_key=abc123"])
def test_in_data_only_what_looks_like_a_secret_is_masked(text):
    """A word after `password=`, or a short token of a URL, may be what was asked for."""
    assert text != masked(text.replace("secret", "wording"), {})
    assert text == masked(text, {}, told=False)


@pytest.mark.parametrize("text", [*HARMLESS, *NOT_SAID])
def test_other_texts_stay(text):
    """Word for word."""
    assert text == masked(text, {})


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
            "PGPASSWORD": "hunter2",
            "A_PASSWORD": "secret",
            "PASSWORD": "2026",
            "API_KEY": "hunter2",
        }
    )
    assert {
        "correct horse": "MY_PASSWORD",
        "q8Zx7Lk2Vb9Nm4Pw1Rt6": "DEPLOY",
        "hunter2": "PGPASSWORD",
    } == secrets
    assert {"a-secret": "MY_TOKEN"} == secrets_of({"MY_TOKEN": "a-secret", "SHA": "q8Zx7Lk2Vb9Nm4Pw1Rt6"}, named=True)
    (found,) = scan_text("it is correct horse", "here", secrets)
    assert ("the value of $MY_PASSWORD", False) == (found.what, "correct horse" in str(found))


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS"])
def test_the_password_of_a_url_is_a_secret_by_itself(name):
    """Also without the rest of the URL, and percent-encoded."""
    secrets = secrets_of({name: "postgres://me:Hunter%2F22pw@host/db"})
    assert list(scan_text("log in as me with Hunter/22pw", "here", secrets))
    assert list(scan_text("log in as me with Hunter%2F22pw", "here", secrets))


KNOWN = "q8Zx7Lk2Vb9Nm4+Pw/1Rt6"
WRITTEN = {
    "in hex": KNOWN.encode().hex(),
    "in upper hex": KNOWN.encode().hex().upper(),
    **{f"in base64, {at} before": base64.b64encode(b"x" * at + KNOWN.encode() + b"\n").decode() for at in range(4)},
    "in base64 of a URL": base64.urlsafe_b64encode(KNOWN.encode()).decode(),
    "in a URL": quote(KNOWN, safe=""),
    "split by a line break": f"{KNOWN[:9]}\n{KNOWN[9:]}",
    "split in source": f"k = ('{KNOWN[:9]}'\n     '{KNOWN[9:]}')".replace("'\n     '", "\n"),
    "with zero-width characters": "\u200b".join(KNOWN),
    "with a soft hyphen": f"{KNOWN[:5]}\u00ad{KNOWN[5:]}",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_known_key_is_found_however_it_is_written(text):
    """Encoded, or split: the finding has the mark of the key itself, and does not show it."""
    (plain,) = scan_text(KNOWN, "here", {KNOWN: "MINE"})
    found = list(scan_text(f"before {text} after", "here", {KNOWN: "MINE"}))
    assert [plain.mark] == [one.mark for one in found]
    assert KNOWN[4:9] not in str(found[0])


@pytest.mark.parametrize(
    "break_", ["\n", "\\\n", "' \\\n    '", '"\n"', "' +\n'", "\r\n", "\u200b", "\ufeff"], ids=repr
)
@pytest.mark.parametrize(
    "key", [f"sk-ant-{'api03'}-{RANDOM}", f"gh{'p_'}{RANDOM}", "AIza" + RANDOM[:35]], ids=lambda key: key[:6]
)
def test_a_key_of_a_known_shape_is_found_in_pieces(key, break_):
    """Split by a line break, as in source or as a mail does it, or by a character that nobody sees."""
    text = f"k = '{key[:14]}{break_}{key[14:]}'"
    assert list(scan_text(text, "here", {}))
    assert not_allowed(scan_file("x.py", text.encode(), {}))


def test_the_gallery_raises_no_alarm():
    """Notebooks, their saved outputs, and the README."""
    files = [*sorted((ROOT / "notebooks").rglob("*.ipynb")), ROOT / "README.md"]
    assert len(files) > 3
    assert [] == [str(one) for path in files for one in scan_file(path.name, path.read_bytes(), {"q8Zx7Lk2Vb9": "A"})]


@pytest.mark.parametrize(
    "part", [" ", "\n", "a", "a.", "sk-", "eyJ", "x://a:", "'\n", "api-key: ", "M.", "SG."], ids=repr
)
def test_long_texts_are_scanned_in_linear_time(part):
    """White space, words and near misses without end: quadratic time would take hours."""
    assert [] == [one for one in scan_text(part * (300_000 // len(part)), "here", {KNOWN: "A"}) if KNOWN in str(one)]


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
