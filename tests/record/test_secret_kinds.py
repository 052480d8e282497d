"""Kinds of secrets, drawn at random: found before something is shared, masked before something is written down."""

from __future__ import annotations

import hashlib
import random
import re
import string
from pathlib import Path

import pytest

from agent_magic.record import masked, scan_text
from agent_magic.record.secret_scan import scan_data, tables

ALPHANUMERIC = string.ascii_letters + string.digits
CHARACTERS = {
    "b": ALPHANUMERIC,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "v": ALPHANUMERIC + "_-",
    "6": ALPHANUMERIC + "+/",
    "s": ALPHANUMERIC + "!@#%^&*(-_=+)",
    "p": ALPHANUMERIC + "()[]{}\"'!#%^*",
    "a": string.ascii_letters,
    "w": string.ascii_lowercase,
}
LINES = (Path(__file__).parent / "secret_kinds.txt").read_text(encoding="utf-8").splitlines()
KINDS = dict(line.split("|", 1) for line in LINES if not line.startswith("#"))


def drawn(template: str, chance: random.Random) -> tuple[str, str]:
    """Return a text with a secret, and the secret's longest part."""
    parts = [""]

    def draw(match: re.Match[str]) -> str:
        parts.append("".join(chance.choice(CHARACTERS[match[1]]) for _ in range(int(match[2]))))
        return parts[-1]

    text = re.sub(r"\[([bhudv6spaw])(\d+)\]", draw, template)
    return (text if '\\"' in text else text.replace("\\n", "\n").replace("\\t", "\t")), max(parts, key=len)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_found_and_masked(kind):
    """Of twenty drawn ones at most one is missed: a random text can look like a word."""
    chance = random.Random(kind)
    missed = kept = 0
    for _ in range(20):
        text, secret = drawn(KINDS[kind], chance)
        missed += not list(scan_text(text, "here", {}))
        kept += bool(secret) and secret[:8] in masked(text, {})
    assert (missed, kept) <= (1, 1)


def test_a_field_of_data_is_judged_by_its_name():
    """A value that looks random is a secret in a field called token, and an answer in any other."""
    value = "q8Zx7Lk2Vb9Nm4Pw1Rt6"
    (found,) = scan_data({"rows": [{"access_token": value, "text": value}]}, "here", {})
    assert ("here, rows, 1, access_token", "the value of access_token") == (found.where, found.what)
    assert [] == list(scan_data({"type": "thinking", "thinking": "x", "signature": value * 3}, "here", {}))
    assert [] == list(scan_data({"key": "7e913c821d8b7a89df3ef727fce01f21"}, "here", {}))


def test_a_value_of_the_environment_is_in_a_url_only_if_it_is_escaped():
    """A finding names the place that the value has."""
    (found,) = scan_text('os.environ["A_KEY"] = "hunter22"', "here", {"hunter22": "A_KEY"})
    assert "the value of $A_KEY" == found.what
    (found,) = scan_text("https://x.org/hunter%2F22", "here", {"hunter/22": "A_KEY"})
    assert "the value of $A_KEY in a URL" == found.what


HARMLESS = [
    "max_tokens=800, output_tokens: 1234567",
    "token: str, password: SecretStr, api_key: str | None = None",
    "password = getpass.getpass()",
    'api_key = os.environ["ANTHROPIC_API_KEY"]',
    'client = Client(api_key="...", token="<your token>", secret="{{ secret }}")',
    'key="claude-haiku-5-5", sort_key="label.sentiment"',
    "the key is in section 12, the token of the day, a secret of 2024-11-26",
    "password_hash_algorithm: argon2id, PASSWORD_HASHER_ROUNDS=260000x",
    "primary_key: 5d41402abc4b2a76b9719d911017c592",
    "error = external_key_not_found: BetaExternalKeyNotFoundError",
    "cookie: a small sweet thing",
    "password: it must have at least eight letters.",
    "seed = 20261126",
    "https://example.com/?page=2&sort=key",
    'password = os.environ.get("DB_PASSWORD") or getpass("The password of the database: ")',
    "| token | what it is |\n|---|---|\n| input_tokens | what was sent |",
    "key,value,password\ncolour,blue,required\nsize,large,optional\n",
    "from x import (\n    max_tokens,\n    total_tokens,\n)\nif total_tokens > max_tokens:\n    warn()",
    '{"name": "max_tokens", "value": 800}, {"name": "token", "default": "cl100k_base"}',
    "the token is counted, and the password is asked for; das Kennwort ist geheim",
    'const key: keyof Row = "sentiment"; key is "label.sentiment"',
    "keys = ['first_column', 'second_column', 'third_column']",
    "https://api.example.com/v1/token/refresh?code=200&state=done",
    "if pass_name:\n    left_on = right_on = 'x'",
    "case _:\n                    pass\n        if partial_json:\n            return 1",
    "pwd: /home/jovyan/work/project_2",
    "        token  count\n0  anthropic     12\n1    claudette   7",
    "az login tells the subscription; then git auth status",
    "password: str = field(default_factory=str)",
    "<table><tr><th>user</th><th>password</th></tr><tr><td>bob</td><td>required</td></tr></table>",
    "<tr><td>max_tokens</td><td>800</td></tr> <b>Password:</b> at least eight letters",
    "The password for the database: ask Bob. The key of this table: name",
    'password = (\n    os.environ["DB_PASSWORD"]\n)',
    "docker login -u me -p $TOKEN; mysql -u root -p shop; sshpass -e ssh host; echo $X | chpasswd",
    "password: required\ndb_password: str\nadmin_password: optional\nuser: me\npassword: ${PASSWORD}",
    'requests.get(u, auth=("user", "password")); smtp.login("me@x.org", "your-password")',
    'jwt.encode(payload, secret, algorithm="HS256"); hmac.new(key, msg, "sha256"); app.secret_key = "change me"',
    "curl 'https://x.org/?password=changeme'; POSTGRES_PASSWORD=password; PWD=/home/me; MYSQL_PASSWORD=$(pass)",
    "test_ThisIsAVeryLongCamelCaseTestName2WithManyWordsInside and key_results_2026_q3_final_v2",
    "the group of $1$-dimensional-representations, $5$-fold_cross-validation_of_models and $y$-coordinates",
    '<input type="password" name="pw_field_2"><input type=password name="user_password">',
    'pass 2: re-rank the rest; password [optional]: your-choice; key.split("label.sentiment_2024")',
    '{"name":"token_type","value":"bearer"},{"name":"key","value":"label.sentiment"}',
    "api-gateway-7d9c5b6f4-abcde, z_score_normalised_2_columns_by_row, m0-baseline-lr1e4-bs32-seed42",
    "docker run -u 1000:1000 -p 127.0.0.1:8080:8080 -h web-1 x",
    "API_KEY=$(cat key.txt) && run; KEYS=(one two three) ./run; TOKEN=${TOKEN:-none42} ./run; KEYS=[KEY_1,KEY_2] ./run",
    "DB_PASSWORD=[password] ./run.sh; API_KEY=[your-api-key-here] && run; API_KEY=(paste_your_key_here) ./run",
    "TOKEN=TOKENS[3] && next; KEY=os.environ[KEY_1] if x else y; SECRET=get_secret(name=db_password_2) or default",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_code_and_prose_about_keys_raise_no_alarm(text):
    """Calls, placeholders, names of models, types, counts, sentences."""
    assert [] == list(scan_text(text, "here", {}))


def _base58(data: bytes) -> str:
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number, text = int.from_bytes(data), ""
    while number:
        number, rest = divmod(number, 58)
        text = letters[rest] + text
    return text


@pytest.mark.parametrize(
    "data", [b"\x80" + bytes(range(32)) + b"\x01", b"\x80" + bytes(range(9, 41)), b"\xef" + b"q" * 32]
)
def test_a_private_key_of_bitcoin_is_known_by_its_checksum(data):
    """Alone in a text, without a name; a text that only looks like one is none."""
    key = _base58(data + hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4])
    assert ["a private key"] == [one.what for one in scan_text(f"see {key}.", "here", {})]
    wrong = _base58(data + b"abcd")
    assert [] == list(scan_text(f"see {wrong}.", "here", {}))


def test_every_shape_can_be_found_by_its_signs():
    """A sign is in small letters, or it would never be found in the text in small letters."""
    for shape in tables()[0]:
        assert shape.signs
        assert [sign.lower() for sign in shape.signs] == [*shape.signs], shape.what
