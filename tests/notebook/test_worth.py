"""Grading and applying as commands."""

from __future__ import annotations

import asyncio

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic import Policy
from agent_magic.api import Plan, Run
from agent_magic.forecast import Finding
from agent_magic.notebook import AgentMagics, Parser
from agent_magic.notebook.planning import confirm
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.notebook.verbs.plans import VERBS as PLANS
from agent_magic.notebook.verbs.runs import VERBS as RUNS
from agent_magic.notebook.verbs.trials import VERBS, graders_of, is_applied
from agent_magic.simulator import child
from tests.measure.test_each import known
from tests.measure.test_path import run_of


def test_truth_and_grader_are_names_of_the_notebook():
    """A variable with truths counts before a column; a grader must be a function."""
    magics = AgentMagics(InteractiveShell.instance())
    magics.shell.user_ns.update(by_hand=[1, 2], right=len)
    parser = Parser("%agents score", arguments=VERBS["score"].options)
    assert {"truth": [1, 2]} == graders_of(magics, parser.read("label --truth by_hand"))
    assert {"truth": "mood"} == graders_of(magics, parser.read("label --truth mood"))
    assert {"grader": len} == graders_of(magics, parser.read("label --grader right"))
    with pytest.raises(UsageError, match="Did you mean 'right'"):
        graders_of(magics, parser.read("label --grader rihgt"))


@pytest.fixture
def magics() -> AgentMagics:
    """A session in which two agents were declared and have run."""
    found = AgentMagics(InteractiveShell.instance())
    found.agent("first --model claude-haiku-5-5", "One")
    found.agent("second --model claude-haiku-5-5", "Two")
    agents = list(found.session.registry().agents)
    found.session.last = asyncio.run(Plan(agents, name=DEFAULT_PLAN).run(client=known({"One": "1", "Two": "2"})))
    return found


def models(magics: AgentMagics) -> list[str | None]:
    """The models of the declared agents."""
    return [one.model for one in magics.session.registry().agents]


def test_what_is_applied_changes_declarations_and_defaults_and_can_be_taken_back(magics, capsys):
    """The diff is printed; undo goes back step by step."""
    magics.shell.user_ns.update(row={"model": {"second": "claude-opus-5-5"}, "concurrency": 3}, out={"drop": "first"})
    before = magics.concurrency
    magics.agents("apply row")
    assert ["claude-haiku-5-5", "claude-opus-5-5"] == models(magics)
    assert 3 == magics.concurrency
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["second", "model", "claude-haiku-5-5", "claude-opus-5-5"] in lines
    assert ["run", "concurrency", str(before), "3"] in lines
    magics.agents("apply out")
    assert ["claude-opus-5-5"] == models(magics)
    magics.agents("undo")
    magics.agents("undo")
    assert ["claude-haiku-5-5", "claude-haiku-5-5"] == models(magics)
    assert before == magics.concurrency
    with pytest.raises(UsageError, match="Nothing to undo"):
        magics.agents("undo")


def test_what_the_server_would_refuse_is_not_applied(magics):
    """A what-if forecasts it all the same, since a run may be opened without its server. What is declared stays."""
    magics.shell.user_ns.update(row={"temperature": 0.5})
    before = magics.session.registry().agents
    with pytest.raises(UsageError, match="claude-haiku-5-5 takes no temperature"):
        magics.agents("apply row")
    assert before == magics.session.registry().agents
    with pytest.raises(UsageError, match="Nothing to undo"):
        magics.agents("undo")


def test_a_recommended_context_is_declared_and_taken_back(magics, capsys):
    """Of a prompt the card shows the lines that differ."""
    options = {"second": {"context": "text", "prompt": "Two", "max_tokens": 300}}
    change = Finding("r", "m", change="Share it.", source="s", options=options)
    magics.shell.user_ns.update(change=change, text="a text")
    before = magics.session.registry().agents
    magics.agent("second --model claude-haiku-5-5", "Two {{ text }}")
    declared = magics.session.registry().agents
    plan = Plan(declared, {"text": "a"}, name=DEFAULT_PLAN)
    magics.session.last = asyncio.run(plan.run(client=known({"One": "1", "Two a": "2"})))
    magics.agents("apply change")
    second = magics.session.registry().agents[1]
    assert ("text", "Two", 300) == (second.context, second.prompt, second.max_tokens)
    shown = capsys.readouterr().out
    assert "The prompt of second:\n- Two {{ text }}\n+ Two" in shown
    assert ["second", "max_tokens", "2048", "by", "default", "300"] in [line.split() for line in shown.splitlines()]
    magics.agents("undo")
    assert (before[0], declared[1]) == magics.session.registry().agents


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("apply", "a trial before it"),
        ("apply 9", r"for the last run has \d change.*For an earlier run"),
        ("apply rwo", "no such variable"),
    ],
)
def test_what_cannot_be_applied_is_said(magics, line, message):
    """With the next step."""
    magics.shell.user_ns.pop("rwo", None)
    with pytest.raises(UsageError, match=message):
        magics.agents(line)


def test_a_trial_before_any_run_says_how_to_begin():
    """With a small budget: a trial needs the rows of a run, and not its answers."""
    magics = AgentMagics(InteractiveShell.instance())
    with pytest.raises(UsageError, match="A small one will do: %agents run --budget"):
        magics.agents("trial label --model a,b --truth mood")


def test_the_price_of_a_trial_leaves_out_what_is_there(capsys, tmp_path):
    """The run's own rows and those of the ledger, of the very rows that would be asked; the last line is all of it."""
    found = AgentMagics(InteractiveShell.instance())
    found.ledger, found.reuse_simulated = str(tmp_path / "ledger.db"), True
    rows = [{"text": f"Text {number}", "right": "abc"[number % 3]} for number in range(12)]
    found.shell.user_ns.update(rows=rows, right=lambda answer, row: True)
    line = "trial label --model claude-haiku-5-5,claude-opus-5-5 --truth right --rows"
    with child.start(latency="none", unlimited=True):
        found.agents("connect simulator --latency none")
        found.agent("label --each rows --model claude-opus-5-5", "{{ item.text }}")
        found.agents("run")
        capsys.readouterr()
        found.agents("trial label --model claude-haiku-5-5,claude-opus-5-5")
        assert "haiku-5-5, 12 rows: 12 requests, about " in capsys.readouterr().out
        found.agents(f"{line} 3")
        haiku, opus, both = capsys.readouterr().out.splitlines()[:3]
        assert haiku.startswith("haiku-5-5, 3 rows: 3 requests, about ")
        assert "opus-5-5, 3 rows: every answer is there already, nothing is sent." == opus
        assert f"All together: {haiku.partition(': ')[2]}" == both
        found.agents(f"{line} 3 --yes")
        capsys.readouterr()
        found.agents(f"{line} 3")
        free = capsys.readouterr().out
        assert ("All together: nothing to buy, $0.", False) == (free.splitlines()[2], "Nothing was sent" in free)
        found.agents(f"{line} 5 --until decided")
        haiku = capsys.readouterr().out.splitlines()[0]
        assert haiku.startswith("haiku-5-5, at most 12 rows, 3 of them answered already: 9 requests, about ")


def test_a_judge_is_asked_after_its_price_and_a_yes(capsys, tmp_path):
    """As a trial: the price of its new answers first, nothing is sent without --yes, and at once if all are there."""
    found = AgentMagics(InteractiveShell.instance())
    found.ledger, found.reuse_simulated = str(tmp_path / "ledger.db"), True
    found.shell.user_ns["rows"] = [{"text": f"Text {number}"} for number in range(3)]
    line = 'score label --judge "Is it kind?"'
    with child.start(latency="none", unlimited=True):
        found.agents("connect simulator --latency none")
        found.agent("label --each rows --model claude-haiku-5-5", "{{ item.text }}")
        found.agents("run")
        run = found.session.last_run()
        capsys.readouterr()
        found.agents(line)
        price, end = capsys.readouterr().out.splitlines()
        assert price.startswith("3 answers: 3 requests, about ")
        assert "Nothing was sent. Add --yes to run it; --budget USD sets a cap." == end
        assert run.scores.empty
        found.agents(f"{line} --yes")
        assert 3 == len(run.scores)
        capsys.readouterr()
        found.agents(line)
        assert capsys.readouterr().out.startswith("3 answers: every answer is there already, nothing is sent.\n")


def test_a_trial_says_how_many_rows_have_a_truth_before_it_asks_for_money(capsys):
    """First of all, and nothing where all have one; the price is of those rows alone, equal ones once."""
    found = AgentMagics(InteractiveShell.instance())
    found.ledger = ""
    rows = [{"text": f"Text {number // 2}", "right": "a" if number < 6 else None, "all": "a"} for number in range(12)]
    found.shell.user_ns.update(rows=rows)
    with child.start(latency="none", unlimited=True):
        found.agents("connect simulator --latency none")
        found.agent("label --each rows --model claude-opus-5-5", "{{ item.text }}")
        found.agents("run")
        capsys.readouterr()
        line = "trial label --model claude-haiku-5-5,claude-opus-5-5 --truth"
        found.agents(f"{line} right")
        said, haiku = capsys.readouterr().out.splitlines()[:2]
        assert "6 of 12 rows have a truth: only those are asked." == said
        assert haiku.startswith("haiku-5-5, 6 rows: 3 requests, about ")
        found.agents(f"{line} all")
        assert capsys.readouterr().out.startswith("haiku-5-5, 12 rows: 6 requests, about ")


def test_what_is_so_already_is_said(magics, capsys):
    """Nothing is kept for undo."""
    magics.shell.user_ns["same"] = {"model": "claude-haiku-5-5"}
    magics.agents("apply same")
    assert "Nothing to change" in capsys.readouterr().out
    assert [] == magics.session.applied


def test_advice_knows_what_is_applied(magics, capsys):
    """It follows from what is declared, so it is so by hand too, and no longer after undo; numbers stay."""
    session = magics.session.shared
    run = magics.session.last = Run(
        run_of([[], [], [0], [1]], [1.0, 5.0, 5.0, 1.0], Policy(schedule="layers")), session=session
    )
    seen = [one.rule for one in run.advise()]
    number = next(n for n, one in enumerate(run.advise().changes, 1) if one.apply.get("schedule") == "ready")
    magics.schedule = "layers"
    assert "change" == magics.agents("advise").frame["action"].iloc[number - 1]
    magics.agents(f"apply {number}")
    assert seen == [one.rule for one in run.advise()]
    assert "applied" == run.advise().frame["action"].iloc[number - 1]
    assert "2 of them applied" in run.advise()._repr_mimebundle_()["text/plain"]
    assert "Applied: the next run has it." in " ".join(repr(run.advise()).split())
    magics.agents("undo")
    assert "change" == run.advise().frame["action"].iloc[number - 1]


def test_a_change_of_an_agent_is_applied_where_it_is_declared_so(magics):
    """By hand as well as by apply."""
    run = magics.session.last
    change = Finding("r", "m", change="Less.", source="s", options={"second": {"max_tokens": 300}})
    gone = Finding("r", "m", change="Drop it.", source="s", apply={"drop": "first"})
    assert [False, False] == [is_applied(magics, run.apply(one)) for one in (change, gone)]
    magics.agent("second --model claude-haiku-5-5 --max-tokens 300", "Two")
    magics.agents("drop first")
    assert [True, True] == [is_applied(magics, run.apply(one)) for one in (change, gone)]


def test_a_batch_in_memory_is_said(magics, capsys):
    """A ledger that ends with the kernel loses a batch that is billed all the same: it is said before the run."""
    magics.ledger = ":memory:"
    parser = Parser("%agents run", arguments=RUNS["run"].options)
    given = parser.read("--batch --yes")
    asyncio.run(confirm(magics, given, magics.freeze(given), magics.policy(given)))
    assert "note: the ledger is in memory" in capsys.readouterr().out


def shown(line: str) -> Parser:
    """The parser of a command."""
    return Parser(f"%agents {line}", arguments=PLANS[line].options)


@pytest.fixture
def chain() -> AgentMagics:
    """A session that has run one plan, and lints another in which one agent waits for nothing it uses."""
    found = AgentMagics(InteractiveShell.instance())
    found.agent("only", "One")
    found.agent("c1 --plan bad", "One")
    found.agent("c2 --plan bad --after c1", "Two")
    run = asyncio.run(Plan(found.session.registry().agents, name=DEFAULT_PLAN).run(client=known({"One": "1"})))
    found.shell.user_ns.update(run=run)
    return found


def lint(magics: AgentMagics):
    """Keep what `found = %agents lint --plan bad` keeps; return the place of the change that it can make."""
    advice = asyncio.run(PLANS["lint"].do(magics, shown("lint").read("--plan bad")))
    magics.shell.user_ns["found"] = advice
    return next(place for place, one in enumerate(advice.changes) if "c2" in one.options)


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize("what", ["{0}", "found.changes[{1}]"])
def test_what_lint_found_is_applied_to_the_plan_that_it_is_of(chain, what, has_run):
    """Its number means what was seen last; and a variable holds it, before any run and for any plan."""
    chain.session.last = chain.shell.user_ns["run"] if has_run else None
    place = lint(chain)
    chain.agents(f"apply {what.format(place + 1, place)}")
    assert () == next(one for one in chain.session.registry("bad").agents if one.name == "c2").after
    chain.agents("undo")
    assert ("c1",) == next(one for one in chain.session.registry("bad").agents if one.name == "c2").after


def test_a_number_means_the_advice_that_was_seen_last(chain):
    """Advice for the last run that was asked for after lint counts."""
    chain.session.last = run = chain.shell.user_ns["run"]
    lint(chain)
    with pytest.raises(UsageError, match=r"lint found \d changes? in 'bad'"):
        chain.agents("apply 9")
    run.advise()
    with pytest.raises(UsageError, match=r"advice for the last run has \d change"):
        chain.agents("apply 9")


def test_what_is_taken_back_reads_the_other_way_round(magics, capsys):
    """What it is now, and what it is again."""
    magics.shell.user_ns.update(row={"model": {"second": "claude-opus-5-5"}}, out={"drop": "first"})
    magics.agents("apply row")
    magics.agents("undo")
    magics.agents("apply out")
    magics.agents("undo")
    said = capsys.readouterr().out
    assert "Taken back:\nsecond: model claude-opus-5-5 -> claude-haiku-5-5" in said
    assert "Taken back:\nfirst: declared again" in said


@pytest.mark.parametrize("what", ["row.nothing", "row[9]", "row.__class__", "row['a']"])
def test_a_variable_has_no_such_thing(magics, what):
    """It is a usage error, and no code is run."""
    magics.shell.user_ns["row"] = [1]
    with pytest.raises(UsageError, match="apply row"):
        magics.agents(f"apply {what}")
