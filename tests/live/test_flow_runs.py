"""Plans that decide, on the virtual loop: against a straight-line interpreter, their forecasts, replays and retries."""

# What was asked has ended, so its times are known; an answer is a number where a critic gives it.
# pyright: reportOptionalOperand=false, reportOperatorIssue=false

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple, TypedDict

from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Run
from agent_magic.errors import Rejected
from tests.live.virtual import Reply, drive


class Review(TypedDict):
    score: int
    notes: str


class Step(NamedTuple):
    """One declared agent, as drawn.

    Attributes:
        name: Its name.
        kind: `text`, `number` or `list`.
        uses: Earlier names, each with whether the prompt can do without.
        when: An earlier number and the least that it must be; `None` asks nothing.
        over: An earlier list that it is declared for each item of; `None` is one agent.
        rounds: Above 0: a draft with a critic behind it, repeated.
    """

    name: str
    kind: str
    uses: tuple[tuple[str, bool], ...]
    when: tuple[str, int] | None
    over: str | None
    rounds: int


MOST = 2
TYPES = {"text": None, "number": int, "list": list[int]}


@st.composite
def drawn(draw):
    """Declared agents, each of which uses earlier ones."""
    found: list[Step] = []
    for number in range(draw(st.integers(2, 7))):
        single = [one.name for one in found]
        numbers = [one.name for one in found if one.kind == "number" and one.over is None]
        lists = [one.name for one in found if one.kind == "list" and one.over is None and not one.rounds]
        uses = draw(st.lists(st.sampled_from(single), unique=True, max_size=2)) if single else []
        when = (
            (draw(st.sampled_from(numbers)), draw(st.integers(0, 4))) if numbers and draw(st.integers(0, 3)) else None
        )
        over = draw(st.sampled_from([None, *lists]))
        rounds = draw(st.sampled_from([0, 0, 0, 2, 3])) if over is None else 0
        kind = "text" if rounds else draw(st.sampled_from(["text", "number", "number", "number", "list", "list"]))
        chosen = tuple((name, draw(st.booleans())) for name in uses)
        found.append(Step(f"s{number}", kind, chosen, None if rounds else when, over, rounds))
    return found


def text_of(step):
    """The prompt of a step."""
    names = [f"{{{{ {name} | default('-') }}}}" if can else f"{{{{ {name} }}}}" for name, can in step.uses]
    item = " {{ item }}" if step.over else ""
    return f"{step.name}{item}: {' '.join(names)}"


def plan_of(steps):
    """The plan that they declare."""
    agents = []
    for one in steps:
        options = {"returns": TYPES[one.kind]} if TYPES[one.kind] else {}
        if one.when is not None:
            options["when"] = f"{one.when[0]} >= {one.when[1]}"
        if one.over is not None:
            options |= {"each": one.over, "most": MOST}
        if one.rounds:
            critic = f"c{one.name}"
            options |= {"until": f"{critic} >= 3", "rounds": one.rounds}
            text = (
                text_of(one)
                + f"{{% if {critic} is not none %}} again, {{{{ {critic} }}}} {{{{ {one.name} }}}}{{% endif %}}"
            )
            agents += [am.Agent(one.name, text, **options), am.Agent(critic, f"rate {{{{ {one.name} }}}}", returns=int)]
        else:
            agents.append(am.Agent(one.name, text_of(one), **options))
    return am.Plan(agents)


def lot(prompt):
    """A number that follows from a prompt."""
    return zlib.crc32(prompt.encode())


def kind_at(steps, prompt):
    """What kind of answer a prompt asks for."""
    if prompt.startswith("rate"):
        return "number"
    name = prompt.split(":")[0].split(" ")[0]
    return next(one.kind for one in steps if one.name == name)


def answer(steps, prompt):
    """What the model answers; `None` where it fails."""
    number = lot(prompt)
    if number % 13 == 0:
        return None
    kind = kind_at(steps, prompt)
    return {"text": f"t{number % 97}", "number": number % 5, "list": [number % 7 + one for one in range(number % 4)]}[
        kind
    ]


LOST, LEFT = "lost", "left"


class Straight:
    """Runs declared agents one after another, as a reader of the documentation would.

    Attributes:
        asked: Every prompt that was sent.
        ends: Per name, an answer, `LOST` or `LEFT`; of a group a list of those, with `None` for unused places.
    """

    def __init__(self, steps):
        self.steps, self.asked, self.ends, self.loops, self.maps = steps, [], {}, {}, {}
        for one in steps:
            if one.rounds:
                self.ends[one.name] = self.loop(one)
            elif one.over is not None:
                self.ends[one.name] = self.map(one)
            else:
                self.ends[one.name] = self.step(one)

    def ask(self, prompt):
        """Send a prompt."""
        self.asked.append(prompt)
        found = answer(self.steps, prompt)
        return LOST if found is None else found

    def shown(self, name, can, place=None, over=None):
        """What a name stands for: its text, or why nothing does."""
        found = self.ends[name]
        if not isinstance(found, dict):
            return "-" if found == LEFT and can else found if found in (LOST, LEFT) else as_text(found)
        if place is not None and self.maps[name] == over:
            one = found["items"][place]
            return "-" if one == LEFT and can else one if one in (LOST, LEFT) else as_text(one)
        members = [one for one in found["items"] if one is not None]
        if LOST in members or found["all"] == LOST:
            return LOST
        if found["all"] == LEFT or (members and all(one == LEFT for one in members)):
            return LEFT
        return "\n\n".join(as_text(one) for one in members if one != LEFT)

    def step(self, one, place=None, item=None):
        """Run one agent, or that for one item."""
        texts = [self.shown(name, can, place, one.over) for name, can in one.uses]
        condition = None if one.when is None else self.ends[one.when[0]]
        if LOST in texts or condition == LOST:
            return LOST
        if LEFT in texts or condition == LEFT:
            return LEFT
        if one.when is not None and condition < one.when[1]:
            return LEFT
        return self.ask(f"{one.name}{'' if one.over is None else f' {item}'}: {' '.join(texts)}")

    def map(self, one):
        """Run an agent for each item of a list."""
        self.maps[one.name] = one.over
        items = self.ends[one.over]
        if items in (LOST, LEFT):
            return {"items": [LOST if items == LOST else None] * MOST, "all": items}
        if len(items) > MOST:
            return {"items": [LOST] + [None] * (MOST - 1), "all": LOST}
        found = [self.step(one, place, item) for place, item in enumerate(items)]
        return {"items": found + [None] * (MOST - len(found)), "all": None}

    def loop(self, one):
        """Run a draft and its critic until that is content."""
        texts = [self.shown(name, can) for name, can in one.uses]
        if LOST in texts:
            return LOST
        if LEFT in texts:
            return LEFT
        begin, draft, score = f"{one.name}: {' '.join(texts)}", None, None
        for _ in range(one.rounds):
            draft = self.ask(begin if score is None else f"{begin} again, {score} {draft}")
            score = LOST if draft == LOST else self.ask(f"rate {draft}")
            if LOST in (draft, score):
                return LOST if draft == LOST else self.after_lost_critic(one, draft)
            if score >= 3:
                break
        return draft

    def after_lost_critic(self, one, draft):
        """A critic that fails ends the loop: its last round has no draft, so what uses the loop is skipped.

        In the last round nothing waits for the critic.
        """
        self.loops[one.name] = True
        last = sum(prompt.startswith(f"{one.name}:") for prompt in self.asked) == one.rounds
        return draft if last else LOST


def as_text(value):
    """As a prompt shows it."""
    return json.dumps(value) if isinstance(value, list) else str(value)


def script_of(steps):
    """The answers as a scripted provider gives them."""

    def script(prompt, _):
        found = answer(steps, prompt)
        takes_s = 1.0 + lot(prompt) % 8 / 4
        if found is None:
            return Reply(takes_s, Rejected("no", status=400), status=400)
        typed = kind_at(steps, prompt) != "text"
        return Reply(takes_s, text=json.dumps({"value": found}) if typed else found)

    return script


def test_what_uses_a_skipped_loop_is_skipped_all_the_way_down():
    """A step that takes a group may be left out with it, so what comes behind that step has to be asked about too."""
    steps = [
        Step("s0", "number", (), None, None, 0),
        Step("s1", "text", (), ("s0", 9), None, 0),
        Step("s2", "text", (("s1", False),), None, None, 2),
        Step("s3", "text", (("s2", False),), None, None, 0),
        Step("s4", "text", (("s3", False),), None, None, 2),
        Step("s5", "text", (("s4", False),), None, None, 0),
    ]
    record, client = drive(plan_of(steps), script_of(steps), Policy(1, seed=1, max_attempts=1))
    assert [request.prompt for request in client.asked] == ["s0: "]
    assert {one.status for one in record.rows if one.name != "s0"} == {"skipped"}


def test_what_can_do_without_the_answer_of_its_item_does():
    """Though all of that group were left out by a condition: a map beside it asks for them by `default`."""
    steps = [
        Step("s0", "number", (), None, None, 0),
        Step("s3", "list", (), None, None, 0),
        Step("s4", "text", (), ("s0", 9), "s3", 0),
        Step("s5", "text", (("s4", True),), None, "s3", 0),
    ]
    record, client = drive(plan_of(steps), script_of(steps), Policy(1, seed=1, max_attempts=1))
    assert sorted(Straight(steps).asked) == sorted(request.prompt for request in client.asked)
    assert [1, 1] == [len(one.attempts) for one in record.rows if one.name.startswith("s5")]


@settings(max_examples=150, deadline=None)
@given(drawn(), st.integers(1, 4))
def test_a_run_does_what_a_straight_reading_says(steps, concurrency):
    """The same prompts go out, whatever is skipped, unused, lost or repeated; every step ends; parts of time add up."""
    straight = Straight(steps)
    record, client = drive(plan_of(steps), script_of(steps), Policy(concurrency, seed=1, max_attempts=1))
    assert sorted(straight.asked) == sorted(request.prompt for request in client.asked)
    assert record.ended_s is not None
    assert all(one.finished_s is not None for one in record.results)
    for one in record.results:
        if one.total_s is not None:
            assert one.total_s == one.queued_s + one.backoff_s + one.api_s + one.tool_s + one.local_s


@settings(max_examples=60, deadline=None)
@given(drawn(), st.integers(1, 4))
def test_a_forecast_and_a_replay_decide_the_same(tmp_path_factory, steps, concurrency):
    """A forecast of the run as it was is that run; a replay from its file has the same ends."""
    plan = plan_of(steps)
    record, _ = drive(plan, script_of(steps), Policy(concurrency, seed=1, max_attempts=1))
    run = Run(record)
    forecast = run.forecast().record
    ends = [(one.name, one.status, one.kind) for one in record.results]
    assert ends == [(one.name, one.status, one.kind) for one in forecast.results]
    assert [one.finished_s for one in record.results] == [one.finished_s for one in forecast.results]
    path = tmp_path_factory.mktemp("flow") / "run.jsonl"
    run.save(path)
    assert ends == [(one.name, one.status, one.kind) for one in plan_of(steps).replay(path).record.results]


def test_a_task_takes_the_last_round_of_a_loop():
    """A task after a loop gets what the last round that ran has answered, not the first one's and not an error."""

    @am.task
    async def shout(draft: str) -> str:
        return draft.upper()

    steps: Any = [
        am.Agent("draft", "d{{ critic }}", until="critic > 1", rounds=3),
        am.Agent("critic", "{{ draft }}", returns=int),
        shout,
    ]
    plan = am.Plan(steps)

    def critic(score):
        return json.dumps({"value": score})

    def script(prompt, number):
        return Reply(text={"dNone": "first", "first": critic(1), "d1": "second", "second": critic(2)}[prompt])

    record, _ = drive(plan, script, Policy(seed=1))
    assert ("succeeded", "SECOND") == (record["shout"].status, record["shout"].value)
