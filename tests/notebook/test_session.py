"""The session, and the small rooms around it: command lines, listings, what the front end tells."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import inspect
import warnings
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

from agent_magic import Agent, Context, Policy
from agent_magic.api import Plan, Run
from agent_magic.errors import AgentMagicError, Cycle, PlanError, UndefinedVariable, UnknownAgent, Unreachable
from agent_magic.notebook import VERBS, Cell, Session, cell_of, declared_page, error_page
from agent_magic.notebook.front_end import is_kernel, notes_of
from agent_magic.notebook.verbs.results import answer_text
from tests.live.virtual import Reply, Scripted, drive

MODEL = "claude-haiku-5-5"
ONE_TRY = Policy(max_attempts=1)


@pytest.fixture
def session():
    """A session that is closed at the end."""
    made = Session()
    yield made
    made.close()


def declare(session, plan="agents", **prompts):
    """Declare agents of a plan."""
    for name, prompt in prompts.items():
        session.registry(plan).declare(Agent(name, prompt), Cell(), ran=(), variables=(), cycles=True)


def test_a_plan_is_what_is_declared(session):
    """Agents in declared order, with the session's defaults, and the values of the namespace that they use."""
    declare(session, a="{{ topic }}", b="{{ a }}")
    plan = session.plan({"topic": 1, "other": 2}, defaults={"model": "m", "max_tokens": 5})
    assert ("a", "b") == plan.names
    assert {"topic": 1} == dict(plan.values)
    assert [("m", 5)] * 2 == [(agent.model, agent.max_tokens) for agent in plan.agents]


def test_a_plan_in_a_variable_is_one_of_its_name(session):
    """Where no cell declares one of that name: with the session's defaults, under the variable's name."""
    held = Plan([Agent("a", "{{ topic }}"), Agent("b", "{{ a }}"), Agent("c", "x")], {"topic": 1}, name="other")
    plan = session.plan({"mine": held}, name="mine", agents=["b"], defaults={"model": "m"})
    assert ("mine", ("a", "b"), {"topic": 1}) == (plan.name, plan.names, dict(plan.values))
    assert ["m", "m"] == [agent.model for agent in plan.agents]
    assert "%agents run --plan mine runs it" in declared_page(session, "mine", {"mine": held}).text()
    declare(session, plan="mine", own="x")
    assert ("own",) == session.plan({"mine": held}, name="mine", defaults={}).names


def test_some_agents_and_their_ancestors(session):
    """Naming agents leaves out what they do not need, broken ones too."""
    declare(session, a="x", b="{{ a }}", broken="{{ nothing }}")
    assert ("a", "b") == session.plan({}, agents=["b"], defaults={}).names
    with pytest.raises(UndefinedVariable):
        session.plan({}, defaults={})
    with pytest.raises(UnknownAgent, match="Did you mean 'broken'"):
        session.plan({}, agents=["brokn"], defaults={})


def test_some_agents_of_a_cycle(session):
    """The walk to the ancestors ends on a cycle, and the plan names it."""
    declare(session, a="{{ b }}", b="{{ a }}")
    with pytest.raises(Cycle):
        session.plan({}, agents=["a"], defaults={})


def test_plans_are_apart(session):
    """Each plan has agents of its own; an empty one says which others there are."""
    declare(session, "first", a="x")
    declare(session, "second", a="y")
    assert ("first", "second") == session.plans
    assert "y" == session.plan({}, name="second", defaults={})["a"].prompt
    with pytest.raises(PlanError, match=r"'agents'.*%%agent NAME.*first, second"):
        session.plan({}, defaults={})


def run_of(plan, script=lambda *_: Reply(), policy=None):
    """Run a plan on a virtual clock."""
    record, _ = drive(plan, script, policy)
    return Run(record)


def test_settling_a_run(session):
    """The last run is kept, one that failed too."""
    declare(session, a="x")
    run = run_of(session.plan({}, defaults={}), lambda *_: Reply(error=Unreachable("x")), Policy(max_attempts=1))
    session.settle(run)
    assert run is session.last
    assert [] == session.running


def ran(session, namespace=None, agents=()):
    """Run what is declared, and settle it. Every prompt gets an answer of its own."""
    plan = session.plan(namespace or {}, defaults={"model": MODEL}, agents=agents)
    session.settle(run_of(plan, lambda prompt, _: Reply(text=f"<{prompt}>")))


def stale(session, namespace=None, **defaults):
    """Name what is stale."""
    return session.stale(session.plan(namespace or {}, defaults={"model": MODEL, **defaults}))


def test_nothing_is_stale_after_a_run(session):
    """Nor before one."""
    declare(session, a="x", b="{{ a }}")
    assert [] == stale(session)
    ran(session)
    assert [] == stale(session)


def test_a_changed_variable_makes_stale(session):
    """The agents whose prompts use it, and those that use their answers; the rest is as it was."""
    declare(session, a="{{ city }}", b="{{ a }}", c="x")
    ran(session, {"city": "Lyon"})
    assert ["a", "b"] == stale(session, {"city": "Paris"})
    assert [] == stale(session, {"city": "Lyon"})


@pytest.mark.parametrize(
    "change", [{"prompt": "y"}, {"model": "claude-opus-5-5"}, {"max_tokens": 5}, {"system": "s"}], ids=str
)
def test_a_changed_agent_is_stale(session, change):
    """By its prompt and by every option that goes out, until it has run again."""
    declare(session, a="x", b="{{ a }}")
    ran(session)
    changed = Agent("a", **{"prompt": "x", **change})
    session.registry().declare(changed, Cell(), ran=(), variables=(), cycles=True)
    assert ["a", "b"] == stale(session)
    ran(session)
    assert [] == stale(session)


def test_a_changed_default_makes_stale(session):
    """Agents that name no model have another one now."""
    declare(session, a="x")
    ran(session)
    assert ["a"] == stale(session, model="claude-opus-5-5")


def test_what_ran_again_alone_leaves_its_children_stale(session):
    """Their answers were made from another one."""
    declare(session, a="x", b="{{ a }}")
    ran(session)
    declare(session, a="y")
    ran(session, agents=["a"])
    assert ["b"] == stale(session)


def test_a_group_is_stale_by_its_name(session):
    """Where one of its items has changed."""
    session.registry().declare(Agent("label", "{{ item }}", each="rows"), Cell(), ran=(), variables=(), cycles=True)
    ran(session, {"rows": ["u", "v"]})
    assert [] == stale(session, {"rows": ["u", "v"]})
    assert ["label"] == stale(session, {"rows": ["u", "w"]})


def test_what_failed_is_not_stale(session):
    """It has no answer that could be."""
    declare(session, a="x")
    failed = run_of(session.plan({}, defaults={}), lambda *_: Reply(error=Unreachable("x")), Policy(max_attempts=1))
    session.settle(failed)
    declare(session, a="y")
    assert [] == stale(session)


def test_the_stand_in(session):
    """Connecting starts it, says so, and everything goes there; disconnecting stops it."""
    url = session.connect_simulator(latency="none")
    assert url == session.shared.client._address
    assert "simulator, seed 0" == session.shared.client.endpoint  # its address is another after each start
    assert "mock server" in session.connection
    simulator = session._simulator
    plan = Plan((Agent("a", "x"),))
    run = asyncio.run(plan.run(client=session.shared.client))
    assert ("succeeded", "simulated") == (run["a"].status, run["a"].source)
    session.disconnect()
    assert not simulator.running
    assert "api.anthropic.com" in session.connection


def test_a_stand_in_that_does_not_start_changes_nothing(session):
    """A wrong option leaves who answers as it was: nothing ever goes to the real API unasked."""
    first = session.connect_simulator(latency="none")
    with pytest.raises(AgentMagicError, match="did not start"):
        session.connect_simulator(latency="nonsense")
    assert first == session.shared.client._address
    assert session._simulator.running
    second = session.connect_simulator(latency="none")
    assert first != second
    assert second == session.shared.client._address


def test_somebody_else_answers(session):
    """`connect` takes any client, and stops the stand-in."""
    session.connect_simulator(latency="none")
    simulator, client = session._simulator, Scripted(None)
    session.connect(client)
    assert client is session.shared.client
    assert not simulator.running
    assert "scripted" == session.connection


def test_closing_stops_what_runs():
    """A run in the background is cancelled, the stand-in stops."""

    async def work():
        session = Session()
        session.connect_simulator(latency="none")
        simulator = session._simulator
        session.background = asyncio.create_task(asyncio.sleep(100))
        session.close()
        await asyncio.wait({session.background})
        return session.background.cancelled(), simulator.running

    assert (True, False) == asyncio.run(work())


# Command lines.


def read_command(command, rest):
    """Read the options of a command."""
    return VERBS.parser(command).read(rest)


SPLIT = {
    "": ("list", ""),
    "   ": ("list", ""),
    "run": ("run", ""),
    " run  a b --fresh ": ("run", "a b --fresh"),
    "--plan p": ("list", "--plan p"),
    "show x": ("show", "x"),
}


@pytest.mark.parametrize(("line", "parts"), SPLIT.items())
def test_a_line_is_split(line, parts):
    """The first word is the command; without one it is `list`."""
    assert parts == VERBS.split(line)


def test_an_unknown_command_is_a_usage_error():
    """It names the nearest one."""
    with pytest.raises(UsageError, match="Did you mean 'run'"):
        VERBS.split("rnu --fresh")
    with pytest.raises(UsageError, match="One of list, "):
        VERBS.split("xyzzy")


def test_the_options_of_a_run():
    """Names and options are read with their types; what is left out is `None`."""
    given = read_command("run", "a b --concurrency 3 --schedule layers --timeout 1.5 --max-attempts 2 --fresh --plan p")
    assert (["a", "b"], 3, "layers", 1.5, 2, True, "p") == (
        given.names,
        given.concurrency,
        given.schedule,
        given.timeout,
        given.max_attempts,
        given.fresh,
        given.plan,
    )
    assert ([], None, False) == (
        read_command("run", "").names,
        read_command("run", "").concurrency,
        read_command("run", "").fresh,
    )


WRONG_LINES = {
    "unknown": ("run", "--concurency 3", "unknown option '--concurency.*Did you mean '--concurrency'"),
    "no number": ("run", "--concurrency x", "%agents run: .*invalid int value: 'x'"),
    "no value": ("run", "--timeout", "expected one argument"),
    "no name": ("show", "", "NAME"),
    "too much": ("last", "a", "unexpected 'a'"),
}


@pytest.mark.parametrize(("command", "rest", "said"), WRONG_LINES.values(), ids=WRONG_LINES)
def test_a_wrong_line_is_a_usage_error(command, rest, said):
    """One line that says what is wrong, and never a `SystemExit`."""
    with pytest.raises(UsageError, match=said) as caught:
        read_command(command, rest)
    assert str(caught.value).startswith(f"%agents {command}: ")


@pytest.mark.parametrize("command", VERBS)
def test_every_command_has_help(command):
    """Each says what it does in a sentence."""
    what = VERBS[command].help
    assert what[0].isupper()
    assert what.endswith(".")


@pytest.mark.parametrize(
    ("line", "awaited"), [("run a", True), (" wait", True), ("", False), ("list", False), ("last", False), (None, True)]
)
def test_what_waits(line, awaited):
    """Only commands that wait for something are awaited, and those whose name is not known yet."""
    assert awaited == VERBS.waits("agents", line)


@pytest.mark.parametrize("command", VERBS)
def test_a_command_waits_if_it_is_a_coroutine_function(command):
    """The table tells the truth: a coroutine nobody awaits would do nothing."""
    assert VERBS[command].waits == inspect.iscoroutinefunction(VERBS[command].do)


# Listings.


def test_a_first_run_that_goes_on_is_no_run_that_never_was(session):
    """What it has brought so far can be looked at; its end cannot."""
    with pytest.raises(AgentMagicError, match=r"Nothing has run in this kernel yet.*%agents open"):
        session.last_run()
    session.running.append(object())
    with pytest.raises(AgentMagicError, match="The first run is under way"):
        session.last_run()


def test_an_empty_list_says_what_to_do(session):
    """No agents yet: how to declare one, and which other plans there are."""
    assert "%%agent NAME" in declared_page(session, "agents", {}).text()
    declare(session, "other", a="x")
    assert "other" in declared_page(session, "agents", {}).text()


def test_a_list_shows_layers_and_what_is_missing(session):
    """Agents by layer, undefined names under them, stale ones last; nothing raises."""
    declare(session, a="{{ topic }}", b="{{ a }}{{ later }}")
    text = declared_page(session, "agents", {"topic": 1}, ["b"]).text()
    assert "2 agents in 2 layers" in text
    assert "b: not defined yet: later" in text
    assert "stale since their last run: b" in text
    assert "a: not defined" not in text


def test_a_list_says_how_each_agent_ended_and_fits_a_terminal(session):
    """A column of the last run, only where one of these agents has run; text of 80 columns, a table in a notebook."""
    declare(session, a="x", b="{{ a }} too")
    assert "last run" not in declared_page(session, "agents", {}).text()
    fails = Reply(error=Unreachable("x"))
    plan = session.plan({}, defaults={"model": MODEL})
    session.settle(run_of(plan, lambda prompt, _: fails if prompt.endswith("too") else Reply(), Policy(max_attempts=1)))
    page = declared_page(session, "agents", {}, ["a"], "claude-haiku-5-5")
    found = {words[0]: words[-1] for words in map(str.split, page.text().splitlines()) if words[0] in {"a", "b"}}
    assert {"a": "stale", "b": "failed"} == found
    assert 80 >= max(map(len, page.text().splitlines()))
    assert "<td>claude-haiku-5-5</td>" in page.bundle()["text/html"].replace(' class="w"', "")


def test_a_list_with_a_cycle_names_it(session):
    """Where a cycle was allowed, the list says so in place of layers."""
    declare(session, a="{{ b }}", b="{{ a }}")
    assert "wait for each other: a -> b -> a" in declared_page(session, "agents", {}).text()


def test_a_list_with_unknown_parents(session):
    """A parent not declared yet is told, not raised."""
    session.registry().declare(Agent("a", "x", after="lost"), Cell(), ran=(), variables=(), cycles=False)
    assert "a: not defined yet: lost" in declared_page(session, "agents", {}).text()


def test_the_text_of_an_agent():
    """The answer, or why there is none."""
    plan = Plan((Agent("a", "x"), Agent("b", "{{ a }}"), Agent("c", "y")))
    run = run_of(
        plan,
        lambda prompt, _: Reply(error=Unreachable("gone") if prompt == "x" else None, status=None),
        Policy(max_attempts=1),
    )
    assert "answer" == answer_text(run, "c")
    assert "b has no text: skipped ('a' did not succeed)." == answer_text(run, "b")
    assert "a has no text: failed (Unreachable: gone)." == answer_text(run, "a")
    with pytest.raises(UnknownAgent):
        answer_text(run, "d")


def test_the_error_of_an_agent():
    """All attempts with status, seconds and what had arrived; nothing for one that did well."""

    def script(*_):
        return Reply(2.0, Unreachable("gone"), first_s=1.0, text="half of it")

    page = error_page(run_of(Plan((Agent("a", "x"),)), script, Policy(max_attempts=2, seed=1)), "a")
    lines = page.text().splitlines()
    assert "a: failed: Unreachable: gone" == lines[0]
    assert "2 attempts" in lines[1]
    assert "attempt HTTP waited took error".split() == lines[2].split()
    assert "1 200 0.0 s 2.0 s Unreachable: gone".split() == lines[3].split()
    assert "attempt 1: 5 characters had arrived: 'half '" == lines[5]
    assert "%agents retry a asks it again." == lines[7]
    assert len(lines) == 8
    assert "a: succeeded." == error_page(run_of(Plan((Agent("a", "x"),))), "a").text()


# What the front end tells.

PARENTS = {
    "JupyterLab": (
        {"metadata": {"cellId": "c1", "deletedCells": ["c2"]}, "header": {"msg_id": "m1"}},
        Cell("c1", "m1", frozenset({"c2"})),
    ),
    "nbclient": ({"metadata": {}, "header": {"msg_id": "m1"}}, Cell(None, "m1")),
    "nothing": ({}, Cell()),
    "no metadata": ({"metadata": None, "header": None}, Cell()),
    "odd": ({"metadata": {"cellId": 5, "deletedCells": None}}, Cell()),
}


@pytest.mark.parametrize(("parent", "cell"), PARENTS.values(), ids=PARENTS)
def test_the_cell_that_runs(parent, cell):
    """Its id and those of deleted cells, where the front end gives them."""
    assert cell == cell_of(SimpleNamespace(get_parent=lambda: parent))


def test_a_terminal_has_no_cells():
    """No `get_parent`, no kernel."""
    assert Cell() == cell_of(SimpleNamespace())


def test_the_jupyter_console_is_no_page():
    """Its library numbers the messages of a session; those of a page have ids of their own."""

    def by(message):
        return cell_of(SimpleNamespace(get_parent=lambda: {"header": {"session": "s", "msg_id": message}})).by_console

    assert (True, False) == (by("s_17_3"), by("0d5e"))
    assert not cell_of(SimpleNamespace(get_parent=lambda: {"header": {"msg_id": "_1"}})).by_console
    assert not is_kernel(SimpleNamespace())
    assert not is_kernel(SimpleNamespace(kernel=None))
    assert is_kernel(SimpleNamespace(kernel=object()))


def test_warnings_are_told_as_notes():
    """Each as a line without a path; other kinds of warnings stay what they are."""
    told = []
    with notes_of(told.append):
        warnings.warn("edge dropped", UserWarning, stacklevel=1)
        warnings.warn("edge dropped", UserWarning, stacklevel=1)
    assert ["note: edge dropped"] * 2 == told
    assert not [line for line in told if __file__ in line]


def test_warnings_before_an_error_are_told_too():
    """An error in the middle does not swallow what was said before it."""
    told = []

    def warn_and_raise():
        warnings.warn("first", UserWarning, stacklevel=1)
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"), notes_of(told.append):
        warn_and_raise()
    assert ["note: first"] == told


def test_a_context_of_another_plan_is_named(session):
    """An agent that shares what only another plan has gets the line that declares it here."""
    session.declare_context(Context("rules", "x"), "third", Cell())
    session.registry("second").declare(Agent("a", "x", context="rules"), Cell(), ran=(), variables=(), cycles=True)
    with pytest.raises(PlanError, match=r"declared for the plan 'third'.*%%context rules --plan second"):
        session.plan({}, name="second", defaults={})
    assert "mine" == session.plan({"rules": "mine"}, name="second", defaults={}).context_of(0)
    session.registry("second").declare_context(Context("rules", "{{ n }}"), Cell(), ran=())
    assert "5" == session.plan({"rules": "mine", "n": 5}, name="second", defaults={}).context_of(0)


def test_contexts_are_listed(session):
    """With their size, who shares them, and what they lack."""
    registry = session.registry()
    for name, text in (("rules", "{{ n }}"), ("laws", "x" * 400)):
        registry.declare_context(Context(name, text), Cell(), ran=())
    registry.declare(Agent("a", "x", context="laws"), Cell(), ran=(), variables=(), cycles=True)
    text = declared_page(session, "agents", {}).text()
    assert (
        "context rules: not defined yet: n, shared by nobody yet\ncontext laws: about 100 tokens, shared by a" in text
    )


def test_a_context_of_no_plan_is_common_to_all(session):
    """Its own context counts before; a change makes agents of every plan stale that share the common one."""
    for plan in ("agents", "second", "third"):
        agent = Agent(plan[0], "x", context="rules")
        session.registry(plan).declare(agent, Cell(), ran=(), variables=(), cycles=True)
    session.declare_context(Context("rules", "{{ n }}"), "agents", Cell())
    session.declare_context(Context("rules", "own"), "third", Cell())
    assert "7" == session.plan({"n": 7}, name="second", defaults={}).context_of(0)
    assert "own" == session.plan({"n": 7}, name="third", defaults={}).context_of(0)
    assert () == session.registry("second").undefined(session.registry("second").agents[0], {})
    assert ["a", "s (second)"] == session.sharing("rules", "agents")
    assert ["t"] == session.sharing("rules", "third")
    agents = [Agent(name, "x") for name in ("a", "s", "t")]
    session.last = Run(drive(Plan(agents), lambda *_: Reply(1.0))[0])
    notes = session.declare_context(Context("rules", "new"), "agents", Cell())
    assert ["now stale: a", "now stale: s"] == notes


def test_a_plan_may_have_an_agent_of_a_common_contexts_name(session):
    """There the name is the agent's."""
    session.declare_context(Context("rules", "x"), "agents", Cell())
    session.registry("second").declare(Agent("rules", "x"), Cell(), ran=(), variables=(), cycles=True)
    session.registry("second").declare(Agent("b", "{{ rules }}"), Cell(), ran=(), variables=(), cycles=True)
    assert (("rules",), ("b",)) == session.plan({}, name="second", defaults={}).layers
