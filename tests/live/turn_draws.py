"""Drawn plans whose agents call tools, are paused, cut and asked again, beside tasks, and a model that answers them."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import inspect
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from hypothesis import reject
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.errors import Overloaded, PlanError, Rejected
from agent_magic.record import Answer, Usage
from agent_magic.record.answer import Citation
from tests.live.virtual import Scripted

MADE: ContextVar[list[str]] = ContextVar("made")
"""The names of functions, once for each call."""

# functions


class Broken(BaseException):
    """What is no `Exception`."""


class Silent(Exception):
    """An error that cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError


ERRORS = [ValueError, SystemExit, asyncio.CancelledError, StopIteration, Broken, Silent, TimeoutError, MemoryError]
ODD: list[Any] = [None, float("nan"), b"\xff", b"text", {1: {2: (3, {4})}}, object(), "\ud800", "", []]
ODD += [Broken, range(3), 10**400, "x" * 100_001, ValueError("returned")]


def quick(n: int) -> int:
    """Add one."""
    MADE.get().append("quick")
    return n + 1


async def slow(n: int) -> str:
    """Take some seconds."""
    MADE.get().append("slow")
    await asyncio.sleep(n % 4)
    return f"waited {n}"


async def broken(n: int) -> int:
    """Raise something."""
    MADE.get().append("broken")
    await asyncio.sleep(n % 2)
    raise ERRORS[n % len(ERRORS)]("why")


def odd(n: int) -> Any:
    """Return something odd, at times unawaited."""
    MADE.get().append("odd")

    async def later() -> Any:
        await asyncio.sleep(1)
        return ODD[n % len(ODD)]

    return ODD[n % len(ODD)] if n % 3 else later()


@am.tool(timeout=2.5)
async def hanging(n: int) -> str:
    """Hang, except for even numbers."""
    MADE.get().append("hanging")
    await asyncio.sleep(1 if n % 2 == 0 else 1000)
    return "even"


@am.tool(alone=True)
async def lonely(n: int = 3) -> int:
    """Run beside no other."""
    MADE.get().append("lonely")
    await asyncio.sleep(1)
    return n


@am.tool(uses="db", writes="notes")
async def writing(n: int) -> int:
    """Hold a resource."""
    MADE.get().append("writing")
    await asyncio.sleep(1.5)
    return n


@am.tool(pure=True)
def pure(n: int) -> int:
    """Square it."""
    MADE.get().append("pure")
    return n * n


@am.tool(safe=True)
async def safe(n: int) -> int:
    """Do what can be repeated."""
    MADE.get().append("safe")
    await asyncio.sleep(0.5)
    return n


@am.tool(ask=True)
async def asking(n: int) -> int:
    """Act where a person agrees."""
    MADE.get().append("asking")
    await asyncio.sleep(0.5)
    return n


@am.tool(main=True)
def on_main(n: int) -> int:
    """Run on the loop's thread."""
    MADE.get().append("on_main")
    if n % 5 == 0:
        raise ERRORS[n % 3]("on main")
    return n


TOOLS = {one.__name__: one for one in (quick, slow, broken, odd, hanging, lonely, writing, pure, safe, asking, on_main)}


def not_bad(answer: Any) -> str | None:
    """Refuse what says so, and fail at some."""
    if str(answer).endswith("77"):
        raise SystemExit
    return "it is bad" if "bad" in str(answer) or str(answer).endswith("3") else None


async def agreed(question: Any) -> bool:
    """Answer as a person who agrees to most, and always to what may have happened."""
    chance = Random(f"{question.agent} {question.tool} {question.text}")
    return question.kind == "doubt" or chance.random() > 0.2


def task_of(name: str, used: list[str], how: str, **options: Any) -> am.Task:
    """A task that takes these names."""

    async def work(**given: Any) -> Any:
        MADE.get().append(name)
        await asyncio.sleep({"waits": 2, "hangs": 1000}.get(how, 0.5))
        if how == "raises":
            raise ERRORS[len(str(given)) % len(ERRORS)]("task")
        return ODD[len(str(given)) % len(ODD)] if how == "odd" else 4

    def at_once(**given: Any) -> str:
        MADE.get().append(name)
        return f"{name}: {len(given)}"

    function: Any = at_once if how == "def" else work
    taken = dict.fromkeys([*used, *(["item"] if options.get("each") else [])])
    function.__name__ = name
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in taken]
    )
    return am.Task(name, function, **options)


# the model


@dataclass
class Talker(Scripted):
    """A model whose answers follow from a seed and the request.

    Attributes:
        faults: Whether requests fail at times.
        again: Whether a request that comes again has another answer.
        together: Whether answers take whole seconds, so that ends coincide.
        billed: What each answer cost, by its id.
    """

    script: Any = None
    seed: int = 0
    faults: bool = True
    again: bool = True
    together: bool = False
    billed: dict[str, Usage] = field(default_factory=dict)
    keys: list[Any] = field(default_factory=list)

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer a request."""
        assert self.opened
        key = (request.model, request.prompt, request.messages, request.tool_choice)
        number = self.counts[key] = self.counts.get(key, 0) + 1
        self.asked.append(request)
        self.keys.append(key)
        chance = Random(f"{self.seed} {key} {number if self.again else 1}")
        self.running += 1
        try:
            return await self._talk(request, stream, chance)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _talk(self, request: Any, stream: Any, chance: Random) -> Answer:
        takes_s = chance.choice([1.0, 2.0, 3.0, 9.0]) if self.together else chance.uniform(0.6, 5.0)
        fault = chance.random() if self.faults else 1.0
        if fault < 0.08:
            await asyncio.sleep(takes_s)
            stream.replied(400 if fault < 0.03 else 529)
            raise Rejected("no", status=400) if fault < 0.03 else Overloaded("busy", status=529)
        text, reason, blocks = self._said(request, chance)
        most = 8 + sum(map(len, request.texts())) // 4
        usage = Usage(
            chance.randint(1, most),
            output_tokens=min(request.max_tokens, len(text) + 9),
            cache_read_tokens=chance.choice([0, 7]),
            cache_write_tokens=0,
        )
        await asyncio.sleep(0.5)
        stream.replied(200)
        stream.usage = Usage(usage.input_tokens, output_tokens=1)
        stream.add(text[: len(text) // 2])
        await asyncio.sleep(takes_s - 0.5)
        stream.add(text[len(text) // 2 :])
        id_ = f"req_{len(self.billed)}"
        self.billed[id_] = usage
        return Answer(
            text,
            reason,
            usage=usage,
            model=request.model,
            request_id=id_,
            refusal="cyber" if reason == "refusal" else None,
            content=None if blocks is None else json.dumps(blocks),
            citations=(Citation(text, "doc", "page 1", "quote"),) if request.cite and text else (),
        )

    def _said(self, request: Any, chance: Random) -> tuple[str, str, Any]:
        """Return the text, the stop reason, and the content."""
        kind = chance.random()
        tools = [one["name"] for one in json.loads(request.tools or "[]")]
        if tools and kind < (0.04 if request.tool_choice == "none" else 0.55):
            said = chance.choice(["", "", "Let me see. "])
            calls = [_call(number, tools, chance) for number in range(chance.choice([1, 1, 2, 3]))]
            return said, "tool_use", [*([{"type": "text", "text": said}] if said else []), *calls]
        if request.schema and chance.random() < 0.15:
            text = chance.choice(["", "no json", '{"other": 1}', "[1, 2"])
        elif request.schema:
            text = json.dumps(_filled(json.loads(request.schema), chance))
        else:
            text = chance.choice([str(chance.randint(0, 9999))] * 9 + ["", " ", "bad"])
        blocks = [{"type": "text", "text": text}]
        for least, reason in ((0.97, "refusal"), (0.92, "max_tokens"), (0.84, "pause_turn"), (0.83, "tool_use")):
            if kind > least:
                return text, reason, None if kind > 0.91 else blocks
        return text, "end_turn", blocks if text and chance.random() < 0.5 else None


def _call(number: int, tools: list[str], chance: Random) -> dict[str, Any]:
    """A call, now and then of nobody or with arguments that do not fit."""
    n = chance.randint(0, 12)
    given = chance.choice([{"n": n}] * 8 + [{"n": "x"}, {}, {"n": n, "m": 1}])
    name = chance.choice([*tools, *tools, *tools, "nobody"])
    return {"type": "tool_use", "id": f"t{number}_{n}", "name": name, "input": given}


def _filled(schema: Any, chance: Random) -> Any:
    """A value of a schema."""
    if "enum" in schema:
        return chance.choice(schema["enum"])
    match schema.get("type"):
        case "integer":
            return chance.randint(0, 9)
        case "boolean":
            return chance.random() < 0.5
        case "array":
            return [_filled(schema["items"], chance) for _ in range(chance.randint(0, 3))]
        case _:
            return {name: _filled(one, chance) for name, one in schema.get("properties", {}).items()}


# plans

MODELS = ["claude-haiku-5-5", "claude-opus-5-5"]
some_tools = st.lists(st.sampled_from(sorted(TOOLS)), min_size=1, max_size=4, unique=True)
OPTIONS: dict[str, Any] = {
    "tools": some_tools.map(lambda names: [TOOLS[one] for one in names]),
    "max_turns": st.integers(1, 4),
    "returns": st.sampled_from([int, Literal["yes", "no"], list[int], dict, bool]),
    "check": st.just(not_bad),
    "cascade": st.just(MODELS),
    "escalate": st.just("'1' in (answer | string)"),
    "fallback": st.just(MODELS[1:]),
    "hedge": st.sampled_from([0.5, 2.0, 4.0]),
    "speculate": st.just(True),
    "repeat": st.just(2),
    "rounds": st.integers(1, 3),
    "each": st.just("rows"),
    "ask": st.just(True),
    "cite": st.just(True),
    "attach": st.just(["paper"]),
    "group": st.just(2),
}
KINDS = {
    "plain": ("", ""),
    "tools": ("tools", "max_turns returns check"),
    "typed": ("returns", "check"),
    "cascade": ("cascade escalate", "returns check"),
    "fallback": ("fallback", "tools"),
    "hedge": ("hedge", ""),
    "early": ("speculate", ""),
    "condition": ("", "tools returns"),
    "race": ("", ""),
    "task": ("", ""),
    "rows": ("each", "tools max_turns returns check"),
    "over": ("", "tools"),
    "task rows": ("each", ""),
    "group": ("each group returns", ""),
    "repeat": ("repeat", "tools returns"),
    "loop": ("rounds", "tools"),
    "continues": ("", "tools returns"),
    "ask": ("ask", "tools returns"),
    "cite": ("cite attach", "tools"),
}
"""Options that a kind of step has, and those it may have."""
CANDIDATES = frozenset({"race", "hedge", "early"})
"""Kinds of which the first answer counts: another order has another result."""


@dataclass
class _Known:
    """What later steps may use."""

    names: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)  # by no other step
    many: set[str] = field(default_factory=set)  # with an answer per item
    lists: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)

    def single(self, names: list[str]) -> list[str]:
        return [one for one in names if one not in self.many]

    def add(self, name: str, used: list[str]) -> None:
        self.names.append(name)
        self.unused = [one for one in [*self.unused, name] if one not in used]

    def forget(self, names: list[str]) -> None:
        """No other step may use what races."""
        for ones in (self.names, self.unused, self.lists, self.agents):
            ones[:] = [one for one in ones if one not in names]


def _links(draw: st.DrawFn, kind: str, options: dict[str, Any], used: list[str], known: _Known) -> list[str]:
    """Draw what a step's options say of earlier ones; return those that it uses more."""
    others = [one for one in known.single(known.names) if one not in used]
    if kind in {"condition", "early"} and others:
        about = draw(st.sampled_from(others))
        options["when"] = f"'{draw(st.integers(0, 3))}' in ({about} | string)"
        return [about]
    options.pop("speculate", None)
    if kind == "over" and known.lists:
        options |= {"each": draw(st.sampled_from(known.lists)), "most": 2}
    if kind == "continues" and known.agents:
        options["continues"] = draw(st.sampled_from(known.agents))
    return [one for one in (options.get("each"), options.get("continues")) if one in known.names]


def steps_of(draw: st.DrawFn, name: str, kind: str, known: _Known, *, calm: bool, mark: Any) -> list[Any]:
    """One step of a kind, or a loop of two."""
    used = draw(st.lists(st.sampled_from(known.names), max_size=2, unique=True)) if known.names else []
    has, may_have = ({one: OPTIONS[one] for one in names.split()} for names in KINDS[kind])
    options = draw(st.fixed_dictionaries(has, optional=may_have))
    told, candidates = [*used], known.single(known.unused)
    if not calm and draw(st.integers(0, 5)) == 0:
        options["timeout_s"] = draw(st.sampled_from([3.0, 8.0]))
    if kind == "race" and len(candidates) > 1:
        racing = draw(st.lists(st.sampled_from(candidates), min_size=2, max_size=3, unique=True))
        known.forget(racing)
        known.add(name, [])
        return [am.first_of(name, racing)]
    used += _links(draw, kind, options, used, known)
    known.add(name, used)
    if options.get("each") or options.get("repeat"):
        known.many.add(name)
    elif options.get("returns") == list[int]:
        known.lists.append(name)
    if kind in {"task", "task rows"}:
        how = draw(st.sampled_from(["def", "odd", "raises", "waits", *([] if calm else ["hangs"])]))
        retries = draw(st.integers(0, 2)) if how == "raises" else 0
        return [task_of(name, told, how, **options, retries=retries)]
    if name not in known.many:
        known.agents.append(name)
    prompt = f"{name} {'{{ item }}' * bool(options.get('each'))} {' '.join(f'{{{{ {one} }}}}' for one in told)}"
    prompt += "" if mark is None else draw(mark(options.get("tools", ())))
    if kind != "loop":
        return [am.Agent(name, prompt, **options)]
    critic = f"c{name}"
    options.pop("timeout_s", None)
    draft = am.Agent(name, f"{prompt} {{{{ {critic} | default('-', true) }}}}", until=f"{critic} > 4", **options)
    known.agents.remove(name)
    known.add(critic, [name])
    return [draft, am.Agent(critic, f"{critic} rate {{{{ {name} }}}}", returns=int)]


@st.composite
def plans(draw: st.DrawFn, *, calm: bool = False, without: frozenset[str] = frozenset(), mark: Any = None) -> am.Plan:
    """A plan of steps of all kinds; a `calm` one ends by itself; `mark` draws what prompts have at their end."""
    steps: list[Any] = []
    known = _Known()
    kinds = [one for one in (*KINDS, "tools", "tools", "typed") if one not in without]
    for number in range(draw(st.integers(1, 6))):
        steps += steps_of(draw, f"s{number}", draw(st.sampled_from(kinds)), known, calm=calm, mark=mark)
    try:
        return am.Plan(steps, {"rows": ["x", "y", "x"], "paper": "A text to cite."})
    except PlanError:  # some of these do not go together
        reject()


POLICIES = st.builds(
    Policy,
    concurrency=st.sampled_from([1, 2, 20]),
    seed=st.just(1),
    max_attempts=st.integers(1, 2),
    schedule=st.sampled_from(["ready", "ready", "layers", "sequential"]),
    max_turns=st.sampled_from([2, 4, 10]),
    on_max_tokens=st.sampled_from(["warn", "fail"]),
    on_refusal=st.sampled_from(["fail", "allow"]),
    on_doubt=st.just("again"),
    identical=st.sampled_from(["once", "each"]),
)
HURRIED = st.builds(
    lambda policy, deadline_s, timeout_s, tokens: am.Policy(
        **{**policy.to_dict(), "deadline_s": deadline_s, "timeout_s": timeout_s, "budget_tokens": tokens}
    ),
    POLICIES,
    st.sampled_from([None, None, 15.0]),
    st.sampled_from([60.0, 60.0, 6.0]),
    st.sampled_from([None, None, None, 3000, 10000]),
)


@st.composite
def hands(draw: st.DrawFn, names: list[str]) -> list[tuple[float, str, Any]]:
    """What a person does during a run; a pause ends, and so does what hangs."""
    some = st.lists(st.sampled_from(names), min_size=1, max_size=2)
    one = st.tuples(st.sampled_from([0.5, 2.0, 4.0, 6.5]), st.sampled_from(["retry", "skip", "stop"]), some)
    asked = draw(st.lists(one, max_size=2))
    asked = [*asked, (1.5, "pause", None), (2.5, "resume", None)] if draw(st.integers(0, 3)) == 0 else asked
    return [*asked, (draw(st.sampled_from([7.0, 300.0])), "stop", None)]
