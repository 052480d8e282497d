"""What people do in a notebook, in drawn order: a run says what a fresh notebook with the same cells says."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from agent_magic.errors import Rejected
from agent_magic.notebook import AgentMagics
from agent_magic.providers import EVERYTHING, Answer, Provider, Usage
from tests.conftest import NIGHTLY

SEEDS = range(2_000 if NIGHTLY else 40)
NAMES = "abcde"
AGAIN = "again "
"""How a prompt begins that is meant to be asked several times."""


def asked(request: Any) -> tuple[str, ...]:
    """What has to be asked again for an edit to hold."""
    return request.prompt, request.model, request.system or ""


class Hashing(Provider):
    """Answers with what a hash of the request says, in words, a number or a list; keeps what was bought."""

    capabilities = EVERYTHING
    endpoint, credentials, is_limited, price_list = "hashing", None, False, None

    def __init__(self, edits: dict[tuple[str, ...], str] | None = None) -> None:
        self.edits = edits or {}
        self.bought, self.asked = Counter[str](), 0
        self.fails: Random | None = None
        self.slow_s = 0.0

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer, or fail every other time while `fails` is set."""
        key = repr((request.prompt, request.model, request.system, request.schema, request.messages))
        told = hashlib.sha256(key.encode()).hexdigest()
        self.asked += 1
        await asyncio.sleep(self.slow_s * int(told[:2], 16) / 255)
        if self.fails is not None and self.fails.random() < 0.5:
            raise Rejected("no", status=400)
        stream.replied(200)
        text = self.edits.get(asked(request), told[:6])
        if request.schema:
            number = int(told[0], 16)
            text = json.dumps({"value": [*told[: number % 4]] if "array" in request.schema else number})
        self.bought[key] += 1
        return Answer(text, "end_turn", usage=Usage(5, output_tokens=3), model=request.model)


class Notebook:
    """A kernel with a provider and, if it is told so, a ledger on the disk."""

    def __init__(self, provider: Hashing, values: dict[str, Any], ledger: str = ":memory:") -> None:
        self.provider = provider
        self.magics = AgentMagics(InteractiveShell(config=Config({"HistoryManager": {"enabled": False}})))
        self.magics.ledger = ledger
        self.values(values)
        self.magics.shell.user_ns["provider"] = provider
        self.line("connect provider")

    def values(self, values: dict[str, Any]) -> None:
        """Set variables."""
        self.magics.shell.user_ns.update(values)

    def line(self, text: str) -> Any:
        """Run `%agents TEXT`."""
        return asyncio.run(self.magics.agents_async(text))

    def declare(self, cells: dict[str, tuple[str, str]]) -> None:
        """Run `%%agent` cells."""
        for line, body in cells.values():
            self.magics.agent(line, body)

    def close(self) -> None:
        """End the kernel; thousands of shells would take an hour to end with the process."""
        self.magics.session.close()
        atexit.unregister(self.magics.shell.atexit_operations)


def drawn_cell(chance: Random, name: str, declared: list[str]) -> tuple[str, str]:
    """Draw the line and the prompt of an agent that may use those of earlier letters."""
    others = [one for one in declared if one < name]
    used = chance.sample(others, min(len(others), chance.randint(0, 2)))
    line, body = [name], f"{name} {chance.randint(0, 2)} "
    kind = chance.choice(["text", "text", "list", "rows", "places", "copies", "rounds", "number", "when"])
    if kind == "list":
        return f"{name} --returns list[str]", body
    if kind == "rows":
        line, body = [*line, "--each rows"], f"{body}{{{{ item }}}} "
    elif kind == "places" and used:
        line, body, used = [*line, f"--each {used[0]} --most 5"], f"{body}{{{{ item }}}} ", used[1:]
    elif kind == "copies":
        line, body = [*line, "--repeat 2"], AGAIN + body
    elif kind == "rounds":
        line, body = [*line, f"--until \"'{chance.choice('0123')}' in {name}\" --rounds 2"], AGAIN + body
    elif kind == "number":
        line.append("--returns int")
    elif kind == "when" and used:
        line.append(f"--when \"'{chance.choice('0123abc')}' in ({used[0]} | string)\"")
    line += ["--model claude-sonnet-5-5"] if chance.random() < 0.15 else []
    line += [f"--system 'be {chance.randint(0, 1)}'"] if chance.random() < 0.15 else []
    body += "{{ topic }} " if chance.random() < 0.3 else ""
    return " ".join(line), body + " ".join(f"{{{{ {one} }}}}" for one in used)


def ends(run: Any) -> dict[str, tuple[Any, ...]]:
    """How each step ended, without those that no round or item came for."""
    return {one.name: (one.status, one.text, one.kind) for one in run.record.results if one.status != "unused"}


class Person:
    """Does one thing after another, and holds each run against a fresh notebook."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance, self.folder = Random(seed), folder
        self.cells: dict[str, tuple[str, str]] = {}
        self.values: dict[str, Any] = {"topic": "t0", "rows": ["r0", "r1"]}
        self.edits: dict[tuple[str, ...], str] = {}
        self.provider, self.last = Hashing(), None
        self.book = self.opened()

    def opened(self) -> Notebook:
        """Open the notebook, with the ledger of before."""
        return Notebook(self.provider, self.values, str(self.folder / "ledger.db"))

    def declare(self) -> None:
        """Write a cell, or write it anew."""
        name = self.chance.choice(NAMES)
        cell = drawn_cell(self.chance, name, [*self.cells])
        self.book.declare({name: cell})  # a cell that is refused declares nothing
        self.cells.pop(name, None)
        self.cells[name] = cell

    def change_a_value(self) -> None:
        """Set the variables anew."""
        self.values["topic"] = f"t{self.chance.randint(0, 2)}"
        self.values["rows"] = [f"r{one}" for one in self.chance.sample(range(4), self.chance.randint(1, 3))]
        self.book.values(self.values)

    def drop(self) -> None:
        """Delete a cell."""
        name = self.chance.choice([*self.cells])
        self.book.line(f"drop {name}")
        del self.cells[name]

    def restart(self) -> None:
        """Restart the kernel and run the cells."""
        self.book.close()
        self.book, self.last = self.opened(), None
        self.book.declare(self.cells)

    def lose_and_find_the_server(self) -> None:
        """Begin or end a time in which requests fail."""
        self.provider.fails = Random(0) if self.provider.fails is None else None

    def look_ahead(self) -> None:
        """Ask what a run would be: nothing is sent."""
        asked = self.provider.asked
        self.book.line(self.chance.choice(["plan", "whatif --concurrency 1,2", "list", "lint"]))
        assert asked == self.provider.asked

    def stop(self) -> None:
        """Run and stop at once, or a little later."""

        async def work() -> None:
            run = asyncio.ensure_future(self.book.magics.agents_async("run"))
            await asyncio.sleep(self.chance.random() * 0.02)
            with contextlib.suppress(UsageError):  # it may be over
                await self.book.magics.agents_async("stop")
            await run

        self.provider.slow_s, self.last = 0.02, None
        try:
            asyncio.run(work())
        finally:
            self.provider.slow_s = 0.0

    def edit(self) -> None:
        """Edit an answer of the last run."""
        done = [one for one in (self.last.record.results if self.last else ()) if one.status == "succeeded"]
        texts = [one for one in done if one.name in self.cells and one.attempts and not one.attempts[-1].request.schema]
        if texts:
            one, text = self.chance.choice(texts), f"edited {self.chance.randint(0, 9)}"
            self.book.magics.agents_cell(f"edit {one.name}", text)
            self.edits[asked(one.attempts[-1].request)] = text

    def run(self) -> None:
        """Run all or one, beside a fresh notebook."""
        some = self.chance.choice(["", "", *self.cells])
        try:
            self.last = self.book.line(f"run {some}")
        except UsageError:  # such as of an agent that uses a dropped one
            return
        assert not [key for key, count in self.provider.bought.items() if count > 1 and AGAIN not in key]
        if self.provider.fails is None:
            fresh = Notebook(Hashing(self.edits), self.values)
            fresh.declare(self.cells)
            assert ends(fresh.line(f"run {some}")) == ends(self.last)
            fresh.close()
            self.replay(some)

    def replay(self, some: str) -> None:
        """Whoever has the cells and the recording sees the same, and asks nobody."""
        file = self.folder / f"run{self.provider.asked}.jsonl"
        self.book.line(f"record {file} --anywhere")
        other = Notebook(Hashing(), self.values)
        other.declare(self.cells)
        other.line(f"replay {file} --anywhere")
        assert ends(self.last) == ends(other.line(f"run {some}"))
        assert 0 == other.provider.asked
        other.close()


DOES = [
    *[Person.declare, Person.run] * 3,
    *[Person.change_a_value, Person.drop, Person.restart, Person.look_ahead, Person.stop, Person.edit],
    Person.lose_and_find_the_server,
]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_done_in_any_order(seed: int, tmp_path: Path):
    """Results are those of a fresh notebook, nothing is bought twice, and a recording says the same."""
    person = Person(seed, tmp_path)
    try:
        for _ in range(person.chance.randint(4, 14)):
            act = person.chance.choice(DOES) if person.cells else Person.declare
            with contextlib.nullcontext() if act is Person.run else contextlib.suppress(UsageError):
                act(person)
    finally:
        person.book.close()
