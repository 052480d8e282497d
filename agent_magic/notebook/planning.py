"""Before a run: show the plan, estimate it, try it with a pilot, ask before a large one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic import forecast, providers, show
from agent_magic.declare.plan_json import attachments_of
from agent_magic.declare.units import dollars, plural
from agent_magic.engine.requests import model_of
from agent_magic.errors import NotConnected
from agent_magic.live.ahead import count_ahead, foresee, rejected_again, terms_ahead, unbought, waiting_in_batches
from agent_magic.live.answer_cache import Earlier
from agent_magic.notebook.front_end import agrees, can_ask, can_decide, display_bundle, is_kernel, note, say, show_page
from agent_magic.notebook.running import ANEW, Resumed, execute
from agent_magic.notebook.session import drop_command
from agent_magic.record.answer import WITH_ANSWER
from agent_magic.show.page import Page

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from agent_magic.api import Plan, Run
    from agent_magic.declare.plan import Plan as DeclaredPlan
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.value import Estimate, Expected, Outlay
    from agent_magic.notebook.command import CommandContext
    from agent_magic.notebook.session import Session
    from agent_magic.providers.base import Provider

MOST_PROMPTS = 3
"""Of one group: the others differ only in their items."""
MOST_CHARS = 2_000


async def show_plan(
    plan: Plan,
    session: Session,
    policy: Policy,
    *,
    fresh: bool,
    graphic: bool,
    asks: bool = False,
    pilot: Run | None = None,
) -> Estimate:
    """Show a plan and return its estimate; nothing is sent but the prompts, to the free count endpoint.

    `fresh` estimates as if the ledger were empty, `asks` adds a button that opens `%agents explore`.
    """
    found, trouble = await _estimate(plan, session, policy, pilot, fresh=fresh)
    prices = session.shared.price_book(lambda _: None)
    worth = forecast.several_or_one(found, prices) if len(plan) <= forecast.MOST_COUNTED else ""
    show_page(Page([show.headline(found)]), graphic=graphic)  # what decides is seen without scrolling
    if graphic:
        estimates = {one.agent: (one.input_tokens + one.output_tokens, one.cost_usd) for one in found.expected}
        display_bundle(show.plan_picture(plan, estimates, path=found.critical_path.agents, theme=session.theme))
        if asks:
            show.Panel(lambda: show.Explorer(found.ahead())).show()
    else:
        say(show.plan_text(plan))
    for text in [*([trouble] if trouble else []), *plan.hints(), *workers_notes(plan, policy, session)]:
        note(text)
    page = show.estimate_page(found, _prompts_text(plan, session.shared.client), worth, head=False)
    show_page(page, graphic=graphic)
    attached = attachments_of(plan)
    if graphic and attached:
        rule = session.shared.client.token_rule(model_of(plan.agents[0]))
        display_bundle(show.attachments_card(attached.values(), rule))
    return found


def workers_notes(plan: DeclaredPlan, policy: Policy, session: Session) -> list[str]:
    streams = min(policy.concurrency, max(map(len, plan.dag.layers())))
    room = None if session.workers is None else session.workers.room
    if room is not None and room < streams:
        return [f"at most {plural(room, 'request')} run at once: the workers that autoscale= starts take no more."]
    useful = providers.useful_workers(streams)
    if useful and session.workers is None and session.spends:
        most = f"one kernel reads some {providers.STREAMS_PER_KERNEL} streams"
        return [
            f"up to {streams:,} requests run at once, and {most}. Workers help: %agents connect dask --workers {useful}"
        ]
    if not useful and session.workers is not None:
        why = f"the kernel itself reads up to {providers.STREAMS_PER_KERNEL}, so workers only add ways to fail"
        return [f"at most {streams:,} requests run at once: {why}. %agents connect api does without them."]
    return []


async def estimated(plan: Plan, session: Session, policy: Policy) -> Estimate:
    return (await _estimate(plan, session, policy, fresh=False))[0]


async def show_price(plan: Plan, session: Session, policy: Policy, times: int = 1) -> None:
    found, _ = await _estimate(plan, session, policy, fresh=True)
    say(show.price_line(found.expected, times))


async def show_new_price(
    plans: Sequence[tuple[str, Plan]], session: Session, policy: Policy, resumed: Resumed = ANEW
) -> bool:
    """Print the price of the answers that are not there yet, and return if any is not."""
    together: list[Expected] = []
    for label, plan in plans:
        found, _ = await _estimate(plan, session, policy, fresh=False)
        buys = [found.expected[agent] for agent in _unbought(session, plan, policy, resumed, fresh=False)]
        owned = len(plan) - len(buys)
        there = f", {owned:,} of them answered already" if owned and buys else ""
        say(f"{label}{there}: {show.price_line(buys) if buys else 'every answer is there already, nothing is sent.'}")
        together += buys
    if len(plans) > 1:
        say(f"All together: {show.price_line(together) if together else 'nothing to buy, $0.'}")
    return bool(together)


async def _estimate(
    plan: Plan, session: Session, policy: Policy, pilot: Run | None = None, *, fresh: bool
) -> tuple[Estimate, str]:
    shared, tried = session.shared, None if pilot is None else pilot.record
    counted, trouble = await count_ahead(plan, shared.client, None if fresh else shared.ledger, tried)
    simulated = session.simulates
    found = plan.estimate(policy, session=shared, fresh=fresh, counted=counted, simulated=simulated, pilot=pilot)
    return found, trouble


async def run_pilot(ctx: CommandContext, given: Namespace, plan: Plan) -> Run | None:
    """Run the most representative agents, their price printed first; `None` if every answer exists already."""
    session, policy = ctx.session, ctx.policy(given)
    names = plan.pilot_agents(given.pilot, session=session.shared, fresh=given.fresh)
    if not names:
        note("every answer is in the ledger: there is nothing to try.")
        return None
    few = plan.select(names)
    say(f"pilot: {', '.join(names)}")
    await show_price(few, session, policy)
    await confirm(ctx, given, few, policy)
    session.pilot = await execute(
        session, few, policy, fresh=given.fresh, graphic=is_kernel(ctx.shell), asks=can_decide(ctx.shell)
    )
    return session.pilot


async def confirm(ctx: CommandContext, given: Namespace, plan: Plan, policy: Policy, resumed: Resumed = ANEW) -> None:
    """Ask before a large run, as set by `%config AgentMagics`."""
    # Nothing is asked on the mock server or a cassette, which cost nothing.
    session = ctx.session
    left = [name for name in session.leftovers(plan.name) if name in {*plan.index, *plan.groups}]
    if left:
        note(f"{', '.join(left)} of cells deleted or changed will run too: {drop_command(left, plan.name)}")
    for text in _batch_notes(session, plan, policy):
        note(text)
    if not session.spends or given.yes or not (ctx.confirm_agents or ctx.confirm_usd):
        return
    what = _outlay(session, plan, policy, resumed, fresh=given.fresh)
    limits = {"above_agents": ctx.confirm_agents, "above_usd": ctx.confirm_usd}
    decided = forecast.confirmation(what, **limits, yes=given.yes, can_ask=can_ask(ctx.shell))
    if decided == "go" or not await _has_key(session):
        return
    line = show.outlay_line(what, policy.budget_usd)
    if decided == "note":
        cap = "" if policy.budget_usd is not None else "; --budget USD sets a cap"
        note(f"{line}{cap}")  # a log has to say it
    elif not agrees(f"{line}: run? [y/N] "):
        raise UsageError(f"Nothing was sent: {line}. --yes runs without asking, --budget USD sets a cap.")


def _batch_notes(session: Session, plan: DeclaredPlan, policy: Policy) -> Iterator[str]:
    ledger = session.shared.ledger
    if ledger is None:
        return
    if policy.batch == "off":
        if waiting := waiting_in_batches(plan, session.shared.client, ledger):
            told = "1 request waits" if waiting == 1 else f"{waiting:,} requests wait"
            yield f"{told} in a batch at the provider, and will be bought again. --batch waits for the answers instead."
    elif ledger.path is None:
        yield (
            "the ledger is in memory, so a batch is lost with this kernel, and billed. "
            "%config AgentMagics.ledger = 'FILE' keeps it."
        )


def _outlay(session: Session, plan: DeclaredPlan, policy: Policy, resumed: Resumed, *, fresh: bool) -> Outlay:
    shared, leave = session.shared, resumed.leave
    asked = _unbought(session, plan, policy, resumed, fresh=fresh)
    prices = shared.price_book(lambda _: None)  # the line says how many have none
    terms = terms_ahead(plan, shared.client, shared.pacer)
    known: Any = {"history": shared.history, "simulated": session.simulates, "prices": prices, "ceilings": terms}
    known["by_server"] = False  # it is asked for dollars, before each run
    found = forecast.estimate_plan(plan, *foresee(plan, shared.client), policy, **known)
    left = plan.numbers(leave)
    left_out = {*left, *plan.dag.descendants(left)}
    return forecast.outlay(found.expected[agent] for agent in asked if agent not in left_out)


def left_line(session: Session, plan: DeclaredPlan, policy: Policy, resumed: Resumed, *, fresh: bool) -> str:
    what = _outlay(session, plan, policy, resumed, fresh=fresh) if session.spends else None
    return "" if what is None or not (what.usd or what.unpriced) else show.outlay_line(what, policy.budget_usd)


def _unbought(session: Session, plan: DeclaredPlan, policy: Policy, resumed: Resumed, *, fresh: bool) -> Sequence[int]:
    if session.deck is not None:  # recorded answers are played, the rest is bought
        return session.deck.find(plan, timeout_s=policy.timeout_s).missing
    where, last = session.shared.client.endpoint, resumed.run
    earlier = None if last is None else Earlier(last.record, where, plan=plan, again=resumed.again)
    found = unbought(plan, where, session.shared.ledger, earlier, fresh=fresh, timeout_s=policy.timeout_s)
    # An agent that was cut between two turns has its first answer only.
    results = () if last is None else last.record.results
    lost = {one.name for one in results if one.status not in WITH_ANSWER}
    return sorted({*found, *(one for one, step in enumerate(plan.agents) if step.tools and step.name in lost)})


def retry_price(session: Session, run: Run, policy: Policy) -> str:
    if not session.spends and not session.simulates:
        return ""
    left = rejected_before(session, run.plan, run)
    has_others = any(one.status == "failed" and one.name not in left for one in run.record.results)
    leave = left if has_others else ()  # if nothing else failed, the price is the next run's
    what = _outlay(session, run.plan, policy, Resumed(run, leave=leave), fresh=False)
    return "" if what.unpriced else f"about {dollars(what.usd)}"


def rejected_before(session: Session, plan: DeclaredPlan, last: Run) -> list[str]:
    # The runs of the session know earlier rejections, which the last run skipped.
    if session.deck is not None:
        return []
    records = [last.record, *(one.record for one in reversed(session.runs) if one.plan.name == plan.name)]
    return rejected_again(plan, records, session.shared.client)


async def _has_key(session: Session) -> bool:
    """Return whether there is a key; without one the run says so, or plays a recording."""
    try:
        async with session.shared.client.open():
            return True
    except NotConnected:
        return False


def _prompts_text(plan: Plan, client: Provider) -> str:
    parts: list[str] = []
    sharing: dict[str, list[int]] = {}
    for number, agent in enumerate(plan.agents):
        if agent.context is not None:
            sharing.setdefault(agent.context, []).append(number)
    for name, numbers in sharing.items():
        who = ", ".join(plan.names[number] for number in numbers)
        context = plan.context_of(numbers[0]) or ""
        shown = (
            _shortened(context)
            if isinstance(context, str)
            else "\n".join(_shortened(one) if isinstance(one, str) else one.label for one in context)
        )
        parts.append(f"--- context {name}, first for {who}\n{shown}")
    printed: Counter[str] = Counter()
    for number, agent in enumerate(plan.agents):
        if agent.is_task:
            continue
        if agent.part is not None:
            group = agent.part.group
            printed[group] += 1
            if printed[group] == MOST_PROMPTS + 1:
                parts.append(f"--- … {len(plan.groups[group]) - MOST_PROMPTS:,} more of {group}")
            if printed[group] > MOST_PROMPTS:
                continue
        answers = {name: f"<{name}'s answer>" for name in plan.inputs[number]}
        typed = "" if agent.returns is None else f", returns {agent.returns}"
        text = show.prompt_words(plan.prompt_ahead(number, answers), client.token_rule(model_of(agent)))
        text = _folded(text, plan, plan.inputs[number])
        parts.append(f"--- {agent.name}{typed}\n{_shortened(text)}")
    return "\n".join(parts)


def _folded(prompt: str, plan: Plan, inputs: Sequence[str]) -> str:
    for group, members in plan.groups.items():
        names = [name for number in members.values() if (name := plan.names[number]) in inputs]
        if len(names) > MOST_PROMPTS:
            each = "\n\n".join(f"<{name}'s answer>" for name in names)
            prompt = prompt.replace(each, f"<{names[0]}'s answer>\n\n… and {len(names) - 1:,} more of {group}")
    return prompt


def _shortened(prompt: str) -> str:
    if len(prompt) <= MOST_CHARS:
        return prompt
    half = MOST_CHARS // 2
    return f"{prompt[:half]}\n… {len(prompt) - MOST_CHARS:,} more characters …\n{prompt[-half:]}"
