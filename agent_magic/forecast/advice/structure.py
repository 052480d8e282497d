"""Rules on the shape of a plan: needless requests and text, missing text, better forms.

They read a run, or the likely run of an estimate.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from agent_magic.declare.declared import without_value
from agent_magic.declare.resources import conflicts
from agent_magic.declare.units import dollars, plural, seconds
from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.errors import some_of
from agent_magic.forecast.advice.finding import (
    BRACES,
    CONCURRENT,
    DEEP_DIVE,
    SCALING,
    SPECIFICATION,
    Finding,
    cheapens,
    fold,
    found,
    practices,
)
from agent_magic.forecast.work import Rewritten
from agent_magic.measure.metrics import NEAR_BOUND, summarize, waited_s
from agent_magic.measure.path import Chains, works
from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.forecast.advice.finding import Outlook
    from agent_magic.record.results import AgentResult

_FED = "\n\nPrevious outputs:\n\n"
"""Precedes the answers that `depends_on` adds to a prompt; see `agent_magic.declare.plan_json`."""
_LEADS = "from|of|by|with|using|what|see|on"
_TRAILS = "says|said|found|wrote|writes|answer|answers|answered"
MANY, SHORT, TOGETHER = 8, 60, 5
"""Minimum tiny requests, their maximum output tokens, and how many fit into one."""
VIEWS = 3
HELD = 0.2
WORTH_IT = "several agents or one"
DEAR = 2.0
"""From twice the dollars of one agent on, the time must be worth it, by the source's own multiple."""


def unused_answers(outlook: Outlook) -> Finding | None:
    """An answer that no agent uses, although another agent joins the rest."""
    plan, dag = outlook.record.plan, outlook.record.plan.dag
    ends = [one for one, below in enumerate(dag.children) if not below]
    joins = [one for one in ends if len(dag.parents[one]) > 1]
    lost = [one for one in ends if one not in joins and not plan.agents[one].is_task and not plan.agents[one].writes]
    if not joins or not lost:
        return None
    names, join = [plan.names[one] for one in lost], plan.names[joins[-1]]
    without = outlook.ask(dropped=frozenset(lost))
    change = f"Let {join} take {{{{ {names[0]} }}}}, or leave {some_of(names)} out."
    measured = f"No agent uses the answer of {some_of(names)}, although {join} joins the others."
    edit = f"{{{{ {names[0]} }}}} in the prompt of {join}, or %agents drop {' '.join(names)}"
    source = f"{DEEP_DIVE}: unused outputs"
    told = found(outlook, "every answer is used", measured, source, without, change, drop=tuple(names))
    return told.at(some_of(names), edit)


def wanted_texts(outlook: Outlook) -> Finding | None:
    """Find agents that wait for another and refer to it, but do not use its answer."""
    plan = outlook.record.plan
    pairs = [(parent, child) for parent, child in ordered(plan) if refers_to(plan[child].prompt, parent)]
    if not pairs:
        return None
    parent, child = pairs[0]
    measured = " ".join(f"{child} mentions {parent} but does not get its answer." for parent, child in pairs[:3])
    change = f"Put {{{{ {parent} }}}} into the prompt of {child}; --after {parent} only orders."
    told = Finding("wanted answers are sent", measured, change=change, source=f"{DEEP_DIVE}: missing dependencies")
    placed = {"prompt": f"{plan[child].prompt.rstrip()}\n\n<{parent}>\n{{{{ {parent} }}}}\n</{parent}>"}
    options = {name: {**said, **placed} for name, said in not_after(plan, parent, child).items()}
    return told.at(child, f"{{{{ {parent} }}}} in place of --after {parent}", options)


def not_after(plan: Plan, parent: str, child: str) -> dict[str, dict[str, Any]]:
    # Steps of a group share one declaration, which would change for all of them.
    one = plan[parent].part
    names = {parent, *(() if one is None else (one.group,))}
    if plan[child].part is not None:
        return {}
    return {child: {"after": tuple(name for name in plan[child].after if name not in names)}}


def ordered(plan: Plan) -> list[tuple[str, str]]:
    """Return the edges that only order; conditions read the answer, so theirs are not among them."""
    edges = [(one.parent, one.child) for one in plan.edges if one.kind == "after"]
    groups = {name: (part.group if (part := plan[name].part) else name) for name, _ in edges}
    return [(parent, child) for parent, child in edges if {parent, groups[parent]} & {*plan[child].after}]


def speaks_of(prompt: str, agent: str) -> bool:
    """Return whether a prompt names an agent outside of its braces; an underscore may be a space."""
    word = re.escape(agent).replace("_", "[_ ]")
    return re.search(rf"\b{word}\b", BRACES.sub(" ", prompt), re.IGNORECASE) is not None


def refers_to(prompt: str, agent: str) -> bool:
    """Return whether a prompt means an agent's answer: `the facts`, `of facts`, `facts says`."""
    word, text = re.escape(agent).replace("_", "[_ ]"), BRACES.sub(" ", prompt)
    return re.search(rf"\b(?:{_LEADS}) {word}\b|\b{word}(?:'s| (?:{_TRAILS}))\b", text, re.IGNORECASE) is not None


def dead_context(outlook: Outlook) -> Finding | None:
    """Find answers that a prompt contains but never refers to, or has through another answer."""
    rows = sorted(_dead(outlook), key=lambda row: -(row[0] or 0.0))
    if not rows:
        return None
    (_, child, why), plan = rows[0], outlook.record.plan
    tokens = sum(_output(outlook, one) for one in {row[2][0] for row in rows})
    more = f" With {plural(len(rows) - 1, 'more such answer')} it is" if len(rows) > 1 else " That is"
    measured = f"{why[1]}.{more} about {tokens:,} tokens."
    parent = outlook.seen[plan.number(why[0])]
    spared = parent.text_characters or (parent.output_tokens or 0) * CHARS_PER_TOKEN
    changed = outlook.ask(rewritten={plan.number(child): Rewritten(spared)})
    pays = cheapens(outlook, outlook.saves_usd(changed))
    change = f"Leave {{{{ {why[0]} }}}} out of the prompt of {child}, if it does not need it." if pays else ""
    told = found(outlook, "no dead context", measured, f"{SCALING}: context", changed if pays else None, change)
    prompt = without_value(plan[child].prompt, why[0])
    told = told.at(child, f"the prompt of {child} without {{{{ {why[0]} }}}}", {child: {"prompt": prompt}})
    return told if prompt.strip() and prompt != plan[child].prompt.strip("\n") else replace(told, options={})


def _dead(outlook: Outlook) -> Iterator[tuple[float | None, str, tuple[str, str]]]:
    plan = outlook.record.plan
    takes = {agent.name: set(inputs) for agent, inputs in zip(plan.agents, plan.inputs, strict=True)}
    for agent in plan.agents:
        if agent.is_task:
            continue
        said, _, fed = agent.prompt.partition(_FED)
        for parent in takes[agent.name]:
            through = next((one for one in takes[agent.name] if parent in takes[one]), None)
            usd = _price(outlook, agent.name, _output(outlook, parent))
            if through is not None:
                yield usd, agent.name, (parent, f"{agent.name} gets {parent} directly and again through {through}")
            elif f"{{{{ {parent} }}}}" in fed and not speaks_of(said, parent):
                yield usd, agent.name, (parent, f"{agent.name} gets {parent} but never mentions it")


def _output(outlook: Outlook, name: str) -> int:
    return outlook.record[name].usage.output_tokens or 0


def _price(outlook: Outlook, name: str, given: int, written: int = 0, read: int = 0) -> float | None:
    rates = outlook.prices.rates(outlook.record[name].model, given + written + read)
    return None if rates is None else (given * rates[0] + read * rates[2] + written * rates[3]) / 1e6


def tiny_requests(outlook: Outlook) -> Finding | None:
    """Many requests for a word or two each: their instruction is sent every time."""
    plan = outlook.record.plan
    for group, members in plan.groups.items():
        numbers = [one for one in members.values() if not outlook.record.results[one].is_shared]
        agent = plan.agents[next(iter(members.values()))]
        longest = max((_output(outlook, plan.names[one]) for one in numbers), default=0)
        if agent.is_task or len(numbers) < MANY or not 0 < longest <= SHORT:
            continue
        if outlook.names[numbers[0]] != group:  # several in a request already, or with a hedge, which excludes that
            continue
        tokens = len(BRACES.sub("", agent.prompt) + (agent.system_text or "")) // CHARS_PER_TOKEN
        spared = len(numbers) - -(-len(numbers) // TOGETHER)
        saves = _price(outlook, agent.name, tokens * spared)
        measured = f"{group} makes {len(numbers)} requests for answers of at most {longest} tokens each."
        change = f"Put {TOGETHER} items into one request: {spared} requests fewer."
        told = Finding(
            "not too many tiny agents",
            measured,
            change=change,
            source=f"{SCALING}: batching of similar requests",
            saves_usd=saves,
            basis="assumed",
        )
        if not agent.returns:  # in a text, the end of an answer is unknown
            return told.at(group, f"--group {TOGETHER} --returns str, or a type of yours")
        return told.at(group, f"--group {TOGETHER}", {group: {"group": TOGETHER}})
    return None


def written_twice(outlook: Outlook) -> Finding | None:
    """Steps that change or use the same thing: they wait for each other even without an edge."""
    plan = outlook.record.plan
    rows = conflicts([plan.holds.get(one, ()) for one in range(len(plan))], plan.dag) if plan.holds else []
    if not rows:
        return None
    name, one, other = rows[0]
    pair = f"{plan.names[one]} and {plan.names[other]}"
    measured = f"{pair} both change or use {name}, so they run one after the other." + (
        f" There are {len(rows)} such pairs." if len(rows) > 1 else ""
    )
    change = f"Let each of {pair} write a {name} of its own, or say who comes first with --after."
    told = Finding(
        "nobody writes what others use", measured, change=change, source=f"{SPECIFICATION}: conflicts; {practices(7)}"
    )
    path = PurePosixPath(name)
    return told.at(pair, f"--writes {path.with_stem(f'{path.stem}_2')}, or --after {plan.names[one]}")


def awaits_in_loops(cells: Sequence[str]) -> Finding | None:
    lines: list[str] = []
    for number, text in enumerate(cells):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
        if any(_runs(node) for loop in loops for part in loop.body for node in ast.walk(part)):
            lines.append(f"In [{number}]")
    if not lines:
        return None
    change = "Declare one agent with --each over what the loop goes through, and run it once."
    measured = f"A loop awaits one run after another, in {', '.join(lines[:3])}."
    told = Finding("no await in a loop", measured, change=change, source=practices(2))
    return told.at(lines[0], "%%agent NAME --each ITEMS, or am.Agent(each=)")


def _runs(node: ast.AST) -> bool:
    match node:
        case ast.Await(value=ast.Call(func=ast.Attribute(attr="run" | "drive"))):
            return True
        case ast.Call(func=ast.Attribute(attr="run_line_magic"), args=[ast.Constant(value=str(name)), line, *_]):
            said = line.value if isinstance(line, ast.Constant) else ""
            return name.startswith("agents") and str(said).startswith("run")
        case _:
            return False


# whether several agents are worth it at all


def worth_it(outlook: Outlook) -> Finding | None:
    """Answer in a paragraph whether several agents are worth it: time, money, quality, and the situation."""
    plan = outlook.record.plan
    asked = [one for one in outlook.record.results if one.attempts]
    if not asked:
        return None
    source = f"{CONCURRENT}: decision matrix; {practices(8)}"
    if is_all_there(outlook):
        return Finding(WORTH_IT, REUSED, source=source)
    work = works(outlook.record)
    path_s = Chains.of(plan.dag, work).longest_s
    bound = sum(work) / path_s if path_s else 1.0
    cost, multiple = summarize(outlook.record).cost_usd, dollars_over_one(outlook)
    one_left = len(asked) > 1 and sum(not _is_there(one) for one in asked) == 1
    word, why = ONE_LEFT if one_left else _situation(outlook, bound, multiple)
    slow, fast = outlook.sequential.wall_s, summarize(outlook.record).wall_s or 0.0
    money = "its dollars are unknown" if cost is None else dollars(cost)
    dearer = multiple is not None and multiple >= 1.05
    more = f", about {fold(multiple)}what one agent with the same answers costs" if dearer and multiple else ""
    measured = (
        f"{word}: {why}. Time: {seconds(fast)}, and {seconds(slow)} one after another; the longest chain takes "
        f"{seconds(path_s)}. Money: {money}{more}. Quality: only graded answers tell."
    )
    can_change = word == "take one" and len(plan) > 1
    change = "Ask one agent for all of it; %agents baseline measures both." if can_change else ""
    return Finding(WORTH_IT, measured, change=change, source=source)


def dollars_over_one(outlook: Outlook) -> float | None:
    # One agent is not sent answers again as input.
    plan, cost = outlook.record.plan, summarize(outlook.record).cost_usd
    sent_on = [
        _price(outlook, agent.name, _output(outlook, parent))
        for agent, inputs in zip(plan.agents, plan.inputs, strict=True)
        if not agent.is_task
        for parent in inputs
    ]
    passed = sum(one or 0.0 for one in sent_on)
    return cost / (cost - passed) if cost and cost > passed and None not in sent_on else None


REUSED = (
    "all answers are in the ledger, so a run takes no time and costs nothing, with several agents or with one. "
    "%agents run --fresh asks again."
)


ONE_LEFT = "it depends", "all answers but one are in the ledger, and that one waits for no other"


def is_all_there(outlook: Outlook) -> bool:
    return all(_is_there(one) for one in outlook.record.results if one.attempts)


def _is_there(result: AgentResult) -> bool:
    used = result.usage
    return result.is_served or (used.total_input_tokens == 0 and used.output_tokens == 0)


def _situation(outlook: Outlook, bound: float, multiple: float | None) -> tuple[str, str]:
    plan, results = outlook.record.plan, outlook.record.results
    waits = waited_s(results)
    items = max(map(len, plan.groups.values()), default=0)
    contexts = [one.context for one in plan.agents if one.context is not None]
    outputs = [one.usage.output_tokens or 0 for one in results if one.attempts]
    if len(plan) == 1:
        return "take one", "one agent runs beside nobody"
    if bound < NEAR_BOUND:
        return "take one", "a chain, in which each waits for the one before"
    if max(waits.get(one, 0.0) for one in DIMENSIONS) > HELD * outlook.as_it_was.wall_s:
        return "it depends", "a rate limit holds it up, and more agents would wait longer"
    if items >= MANY and max(outputs, default=0) <= SHORT:
        return "it depends", "many tiny requests, which could go several at a time"
    if items >= MANY:
        return "take several", "one job for many items that do not need each other"
    if contexts and max(map(contexts.count, contexts)) >= VIEWS:
        return "take several", "several views of one text, which is paid for once"
    if multiple is not None and multiple >= DEAR:
        return "it depends", "dear, as answers are sent on again and again: is the time worth it?"
    return "take several", "parts that do not need each other"


SHAPE = (worth_it, unused_answers, wanted_texts, dead_context, tiny_requests, written_twice)
