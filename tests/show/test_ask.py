"""A packed run: it answers what the run answers, has no text of it, and needs little besides Python."""

from __future__ import annotations

import base64
import io
import json
import lzma
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from agent_magic import Agent, Policy, TokenPrice, image, task, text_file
from agent_magic.api import Ledger
from agent_magic.declare import Plan
from agent_magic.errors import RateLimited
from agent_magic.forecast import Forecaster
from agent_magic.forecast.whatif import whatif_rows
from agent_magic.providers import MODELS
from agent_magic.record import Prices
from agent_magic.record.cassette.writing import only_length
from agent_magic.show import Choice, Explorer, answering, pack_run
from agent_magic.show.explore import Controls, open_packed
from agent_magic.show.run_page import needs_templates, pack_engine, run_page
from tests.declare.test_content import png
from tests.live.virtual import Reply, drive
from tests.show.story import business_run, finished_run, layered_plan

CANARY = "quetzal-4711"
LONG = f"The {CANARY} guide: " + "be brief … 𝄞 ünd kind. " * 200
ASKED: dict[str, Any] = {
    "model": [None, "claude-haiku-5-5", "claude-opus-5-5"],
    "concurrency": [1, 3],
    "schedule": ["ready", "layers"],
    "cache": [None, "off"],
    "limits": [None, "off", 30],
}


@task
async def joined(part: Any) -> str:
    """Join answers; on the loop, since a thread takes real time."""
    return f"{CANARY} " + "; ".join(map(str, part))


def look(place: str) -> str:
    """Look somewhere.

    Args:
        place: Where, as quetzal-4711 says.
    """
    return place


def answers(prompt: str, number: int) -> Reply:
    """Answer slowly, sometimes after a refusal, with what the kind of plan asks for."""
    size = 2.0 + len(prompt) % 7
    tokens = (50 + len(prompt) // 4, 40, 0, 0)
    if "Refused" in prompt and number == 1:
        return Reply(0.1, error=RateLimited("429: too many", retry_after_s=3.0))
    if "<item" in prompt:
        rows = [{"item": number, "answer": {"ok": True}} for number in (1, 2)]
        return Reply(size, text=json.dumps({"answers": rows}), tokens=tokens)
    if "List" in prompt:
        return Reply(size, text=json.dumps({"steps": [f"{CANARY} {one}" for one in range(3)]}), tokens=tokens)
    if "Judge" in prompt:
        return Reply(size, text=json.dumps({"ok": "again" not in prompt}), tokens=tokens)
    return Reply(size, first_s=0.5, text=f"{CANARY} says … again" * 5, tokens=tokens)


def schema(**fields: str) -> dict[str, Any]:
    """Return the schema of an object."""
    kinds = {"list": {"type": "array", "items": {"type": "string"}}}
    made = {name: kinds.get(kind, {"type": kind}) for name, kind in fields.items()}
    return {"type": "object", "properties": made, "required": list(fields)}


TYPED: Any = [
    Agent("list_them", "List three.", returns=schema(steps="list")),
    Agent("part", "Do {{ item }}.", each="list_them.steps", most=5),
    joined,
    Agent("end", "{{ joined }} {{ list_them.steps | length }}"),
]
PLANS: dict[str, Plan] = {
    "typed": Plan(TYPED),
    "cascade": Plan(
        [
            Agent("a", "Ask", cascade=MODELS[:2], escalate="'again' in answer"),
            Agent("b", "Ask {{ a }}", fallback=MODELS[1:2], tools=[look]),
        ]
    ),
    "grouped": Plan(
        [Agent("row", "Rows: {{ item }}", each="rows", returns=schema(ok="boolean"), group=2), Agent("e", "{{ row }}")],
        {"rows": [f"{CANARY} {one}" for one in range(3)]},
    ),
    "loop": Plan(
        [
            Agent(
                "draft",
                f"Write about {CANARY}. {{% if judge %}}{{{{ judge }}}}{{% endif %}}",
                until="judge.ok",
                rounds=3,
            ),
            Agent("judge", "Judge: {{ draft }}", returns=schema(ok="boolean")),
            Agent("publish", "Print {{ draft }}", when="judge.ok == False"),
            Agent("after_all", "Say {{ publish | default('nothing') }}"),
        ]
    ),
    "attached": Plan(
        [
            Agent("look", "See {{ fig }}, heed {{ rules }}"),
            Agent("again", "Refused: {{ look }} {{ fig }}", model="claude-sonnet-5-5"),
        ],
        {"fig": image(png(), title=f"{CANARY}.png"), "rules": text_file(LONG.encode(), title=f"{CANARY}.md")},
    ),
    "rows": Plan(
        [
            Agent("label", "Label {{ item }}", each="rows", context="guide"),
            Agent("check", "Check {{ label }}", each="rows", context="guide", returns=schema(ok="boolean")),
            Agent("sum", "Refused: {{ label }} {{ check }} {{ mode }}", model="claude-sonnet-5-5", priority=2),
        ],
        {"rows": [f"{CANARY} {one}" for one in range(4)], "guide": LONG, "mode": CANARY},
    ),
}


def run_of(kind: str) -> Any:
    """Return the record of a plan that ran; `cut` is one that was stopped."""
    if kind in PLANS:
        return drive(PLANS[kind], answers, Policy(2, seed=3))[0]
    if kind == "layered":
        return finished_run(layered_plan(40, 6))
    return business_run(4.0) if kind == "cut" else business_run()


@pytest.mark.parametrize("kind", [*PLANS, "business", "layered", "cut"])
def test_it_forecasts_what_the_run_forecasts(kind: str):
    """Every number of every scenario is the same to the last bit, though no text is there."""
    record = run_of(kind)
    packed = pack_run(record)
    here, there = Forecaster(record), open_packed(packed)
    assert whatif_rows(here, ASKED) == whatif_rows(there, ASKED)
    said = zlib.decompress(base64.b64decode(packed)).decode()
    assert CANARY not in said
    assert CANARY not in json.dumps(json.loads(json.loads(said)["recording"].splitlines()[-1]))
    assert needs_templates(record.plan) is (kind in {"cascade", "loop"})


def test_it_shows_what_the_panel_shows():
    """A choice of the page is answered as in a notebook: the same numbers, picture and errors."""
    record = business_run()
    answer, controls = answering(pack_run(record)), Controls(Explorer(Forecaster(record)))
    first = json.loads(answer(""))
    assert controls.setup == first["setup"]
    for asked in ({}, {"concurrency": 2, "seq": 1}, {"concurrency": 0, "seq": 2}, {"limits": "50", "batch": True}):
        assert json.loads(json.dumps(controls.choose(asked))) == json.loads(answer(json.dumps(asked)))


def test_rows_that_ask_the_same_are_counted_once_there_too():
    """The texts are left out of a page, and which rows share an answer is not; what was saved stands in it."""
    plan = Plan([Agent("m", "row {{ item }}", each="rows", model="claude-haiku-4-5")], {"rows": ["x", "y", "x", "x"]})
    ledger, reply = Ledger(), lambda *_: Reply(1.0, tokens=(1_000, 200, 0, 0))
    first, _ = drive(plan, reply, Policy(4, seed=1), ledger=ledger)
    again, _ = drive(plan, reply, Policy(4, seed=1), ledger=ledger)
    for record in (first, again):
        answer, controls = answering(pack_run(record)), Controls(Explorer(Forecaster(record)))
        for asked in ({}, {"concurrency": 1, "seq": 1}):
            assert json.loads(json.dumps(controls.choose(asked))) == json.loads(answer(json.dumps(asked)))
    assert "$0.0040 (as the run's $0.0040)" in Explorer(Forecaster(first)).answer(Choice()).line
    assert ", $0.0040 saved" in run_page(first, name="p", cassette=b"")
    assert "4 of 4 reused" not in run_page(again, name="p", cassette=b"")
    assert "2 of 4 reused, $0.0080 saved" in run_page(again, name="p", cassette=b"")


def test_your_prices_go_with_it():
    """A page forecasts with the prices of the session that wrote it, not with the list."""
    record = business_run()
    own = Prices({record.results[0].model: TokenPrice(1000.0, 5000.0)})
    here, there = Forecaster(record, prices=own), open_packed(pack_run(record, own))
    asked = {"concurrency": [1], "model": [None, "claude-opus-5-5", record.results[0].model]}
    assert whatif_rows(here, asked) == whatif_rows(there, asked)


@pytest.mark.parametrize("text", ["", "plain", "ünd", "…", "𝄞", LONG, "\ud800"])
def test_a_length_is_that_of_the_text(text: str):
    """What stands for a text is as long, in characters and in bytes, and says nothing else."""
    found = only_length(text)
    assert (len(text), len(text.encode("utf-8", "surrogatepass"))) == (len(found), len(found.encode()))
    assert set(found) <= {".", "\u00b7", "\u2026", "\U00010000"}


BARE = """
import sys
sys.path.insert(0, "engine")
from agent_magic.show.explore import answering
print(answering(open("run.txt").read())('{"concurrency": 2}'))
"""


@pytest.mark.parametrize("kind", ["business", "loop"])
def test_the_engine_is_all_it_needs(kind: str, tmp_path: Path):
    """The packed modules answer alone: nothing that is installed is there, conditions are read by what was packed."""
    record = run_of(kind)
    (tmp_path / "run.txt").write_text(pack_run(record))
    packed = pack_engine(templates=needs_templates(record.plan))
    assert len(packed) < (358_000 if needs_templates(record.plan) else 293_000)
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(base64.b64decode(packed)))) as archive:
        archive.extractall(tmp_path / "engine", filter="data")
    command = [sys.executable, "-I", "-S", "-c", BARE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    expected = Controls(Explorer(Forecaster(record))).choose({"concurrency": 2})
    assert expected["line"] == json.loads(done.stdout)["line"]
