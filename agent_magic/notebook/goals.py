"""`%%plan`: a goal goes to a coordinator, its plan is shown with an estimate and put below as a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.api import Plan
from agent_magic.declare.cells import without_tool_lines
from agent_magic.declare.coordinator import COORDINATOR, coordinator, read_plan
from agent_magic.notebook.declaring import PARSERS, tool_lines_note
from agent_magic.notebook.front_end import can_ask, can_decide, is_kernel, note, put_cell, show_page
from agent_magic.notebook.planning import show_plan
from agent_magic.notebook.running import execute
from agent_magic.show.page import Fold, Line, Page, Words

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run
    from agent_magic.notebook.command import CommandContext


async def plan_goal(ctx: CommandContext, line: str, goal: str) -> None:
    """Ask for a plan of the goal in a `%%plan` cell, show it, and put its cells below. Nothing of it runs."""
    given, session = PARSERS["plan"].read(line), ctx.session
    for text in tool_lines_note(goal):
        note(text)
    goal = without_tool_lines(goal)[0]
    options: Any = {"agents": given.agents, "strategy": given.strategy, "max_tokens": given.max_tokens}
    asked = coordinator(goal, ctx.shell.user_ns, Plan, model=given.model or ctx.model, **options)
    graphic, policy = is_kernel(ctx.shell), ctx.policy(given)
    run = await execute(session, asked, policy, fresh=given.fresh, graphic=graphic, asks=can_ask(ctx.shell))
    plan = _plan_of(run, given)
    text = plan.to_cell()
    defaults = ctx.defaults()
    known = Plan(
        [agent.with_defaults(**defaults) for agent in plan.agents if not agent.is_task],
        plan.values,
        name=plan.name,
        description=plan.description,
    )
    await show_plan(known, session, policy, fresh=False, graphic=graphic, asks=can_decide(ctx.shell))
    if run.record.served and not given.put:
        show_page(Page([Fold("the cell", [Words(text)])]), graphic=graphic)
        note("this plan was bought earlier, so its cell is not put below once more: --put does, --fresh asks again")
        return
    show_page(Page([Line("change this cell, run it, then %agents run.", head="next:")]), graphic=graphic)
    put_cell(ctx.shell, text)


def _plan_of(run: Run, given: Namespace) -> Plan:
    result = run[COORDINATOR]
    if result.status != "succeeded":
        raise UsageError(
            f"No plan came back: {result.error or result.status}. "
            f"%agents show {COORDINATOR} has the answer, --fresh asks again."
        )
    return read_plan(result.value, Plan, run.plan.values, name=given.plan)
