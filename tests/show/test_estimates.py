"""What a plan may cost and take, as text: every number with what it stands on."""

from __future__ import annotations

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.api import Ledger
from agent_magic.forecast import outlay
from agent_magic.live import foresee
from agent_magic.record import Answer, Past, Usage
from agent_magic.show import Page, estimate_page, headline, price_line
from tests.record.histories import answered

MODEL = "claude-haiku-5-5"
PLAN = am.Plan([am.Agent("a", "x", max_tokens=900), am.Agent("b", "{{ a }}", max_tokens=900), am.Agent("c", "z")])


def test_the_text_says_what_is_bought_and_what_each_number_stands_on(tmp_path):
    """One answer is in the ledger, one agent has a past, one has none."""
    ledger, client = Ledger(tmp_path / "ledger.db"), am.Claude(base_url="http://127.0.0.1:9")
    answer = Answer("one", "end_turn", usage=Usage(1, output_tokens=1), model=MODEL)
    ledger.keep(foresee(PLAN, client)[0][0].key(client.endpoint), 0, answer)
    history = answered(PLAN.agents, [Past("b", MODEL, None, 1, 100, 1.0, 3.0, simulated=False)] * 5)
    prices = {MODEL: TokenPrice(1.0, 5.0)}
    found = PLAN.estimate(am.Policy(2, budget_usd=0.0001), client=client, ledger=ledger, history=history, prices=prices)
    ledger.close()
    text = estimate_page(found).text()
    lines = text.splitlines()
    first, second, third = lines[lines.index("by agent") + 2 :][:3]
    assert lines[0].startswith("agents: 3 agents, about $")
    assert "partly assumed" in " ".join(lines[:2])
    assert max(map(len, text.splitlines())) <= 80
    assert ["a", "ledger", "ledger", "0.0", "s", "$0", "$0"] == first.split()
    assert ["b", "≈1", "100", "100–100", "3.0", "s"] == second.split()[:6]
    assert ["c", "≈1", "?500"] == third.split()[:3]
    rest = " ".join(text.split())
    assert "reused 1 of 3 answers, at $0" in rest
    assert "lengths 1 ledger, 1 assumed" in rest
    assert "limited by the budget" in rest
    assert "is enough for 1 of 3 agents" in rest
    assert "critical path c " in rest
    assert "length: assumed 500 tokens (125–2,000), no earlier answers (c)" in text.splitlines()


def test_what_decides_is_seen_and_the_rest_is_folded():
    """Dollars, seconds and how sure they are in one line, which stands above the picture by itself."""
    found = am.Plan([am.Agent("a", "x")]).estimate(prices={MODEL: TokenPrice(1.0, 5.0)})
    shown = estimate_page(found, "asked", "worth it", head=False).bundle()["text/html"]
    before, *folds = shown.split("<details>")
    assert 4 == len(folds)
    assert "about $" not in before
    line = " ".join(Page([headline(found)]).text().split())
    assert line.startswith("agents: 1 agent, about $0.0025 and ")
    assert "partly assumed" in line


def test_one_agent_depends_on_nobody():
    """It is limited by itself, as a run of it says."""
    found = am.Plan([am.Agent("a", "x")]).estimate(prices={MODEL: TokenPrice(1.0, 5.0)})
    assert "longest" == found.limited_by
    assert "limited by its longest step" in repr(found)
    assert "1 agent\n" in repr(found)
    assert "rate limits unknown, ignored" in estimate_page(found).text()


def test_a_declaration_with_many_items_is_one_row():
    """As it is one card of the picture: its sums, and how long one of them takes. Fewer have a row each."""
    for items, rows in ((9, 10), (40, 2)):
        agents = [am.Agent("label", "{{ item }}", each="words"), am.Agent("r", "{{ label }}")]
        plan = am.Plan(agents, values={"words": [f"w{one}" for one in range(items)]})
        found = plan.estimate(prices={MODEL: TokenPrice(1.0, 5.0)})
        lines = estimate_page(found).text().splitlines()
        table = lines[lines.index("by agent") + 2 :]
        assert rows == table.index("")
    assert table[0].startswith("label (40)")
    assert " each " in table[0]
    assert 20_000 == sum(one.output_tokens for one in found.expected if one.group == "label")
    assert "?20,000" in table[0]
    assert max(map(len, estimate_page(found).text().splitlines())) <= 80


def test_tasks_are_counted_as_tasks():
    """They ask no model, so they are no agents and no requests, and have no tokens and no dollars of their own."""
    plan = am.Plan([am.Agent("label", "x"), am.Task("best", lambda label: label), am.Agent("report", "{{ best }}")])
    found = plan.estimate(prices={MODEL: TokenPrice(1.0, 5.0)})
    text = estimate_page(found).text()
    assert text.startswith("agents: 2 agents and 1 task, about $")
    assert ["best", "task", "?0.0", "s"] == next(line.split() for line in text.splitlines() if line.startswith("best"))
    assert "lengths 2 assumed" in text
    assert "Estimate of 'agents': 2 agents and 1 task" in repr(found)
    assert price_line(found.expected).startswith("2 requests, ")
    assert 2 == outlay(found.expected).agents
