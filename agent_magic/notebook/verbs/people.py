"""Answer the questions of active runs to a person, without the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.engine.calls import Verdict
from agent_magic.errors import DeclarationError
from agent_magic.live.people import NOTHING, settle
from agent_magic.notebook.command import CommandContext, Parser, Verb, add_nothing
from agent_magic.notebook.front_end import say
from agent_magic.record.plaintext import visible
from agent_magic.show.asking import asked_text

if TYPE_CHECKING:
    from argparse import Namespace


def _pending(ctx: CommandContext, _: Namespace) -> None:
    found = {number: question for desk in ctx.session.desks for number, question in desk.open.items()}
    say("\n".join(asked_text(number, one) for number, one in sorted(found.items())) or NOTHING)


def _answer(ctx: CommandContext, wanted: str, verdict: Verdict) -> None:
    if not any(desk.open for desk in ctx.session.desks):
        raise UsageError(f"{NOTHING} %agents start runs in the background; what it asks can be answered then.")
    try:
        settle(ctx.session.desks, wanted, verdict)
    except DeclarationError as error:
        raise UsageError(visible(str(error))) from None


def _approve(ctx: CommandContext, given: Namespace) -> None:
    _answer(ctx, given.question, Verdict(approved=True, text=given.edit))


def _deny(ctx: CommandContext, given: Namespace) -> None:
    _answer(ctx, given.question, Verdict(approved=False, why=" ".join(given.why)))


def _add_question(parser: Parser) -> None:
    parser.add_argument(
        "question", metavar="NUMBER", help="The question's number, or the agent if it asks only this one."
    )


def _add_approve_options(parser: Parser) -> None:
    _add_question(parser)
    parser.add_argument(
        "--edit", metavar="TEXT", help="The changed arguments as JSON, or the changed answer; in quotes."
    )


def _add_deny_options(parser: Parser) -> None:
    _add_question(parser)
    parser.add_argument("why", nargs="*", metavar="WHY", help="The reason. The model is told.")


VERBS = {
    "pending": Verb(
        "List the open questions of agents, each with its number.",
        add_nothing,
        _pending,
        examples=("%agents pending",),
    ),
    "approve": Verb(
        "Approve a question of an agent, unchanged or edited.",
        _add_approve_options,
        _approve,
        examples=(
            "%agents approve 1",
            "%agents approve analyst    # its only question",
            """%agents approve 1 --edit '{"to": "sales@example.com"}'""",
        ),
    ),
    "deny": Verb(
        "Deny a question of an agent.",
        _add_deny_options,
        _deny,
        examples=("%agents deny 1", "%agents deny analyst send it to sales instead"),
    ),
}
