"""What tokens cost: what is listed, and what the user says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.notebook.verb import Desk, Parser, Verb
from agent_magic.record.prices import Prices, TokenPrice
from agent_magic.show.estimates import tariff_text

if TYPE_CHECKING:
    from argparse import Namespace

RATES = ("input", "output", "cache_read", "cache_write")


def _options(parser: Parser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="The model; without it, those declared.")
    parser.add_argument("--input", type=float, metavar="USD", help="Per million uncached input tokens.")
    parser.add_argument("--output", type=float, metavar="USD", help="Per million output tokens.")
    parser.add_argument("--cache-read", type=float, metavar="USD", help="Read from the cache; a tenth of the input.")
    parser.add_argument("--cache-write", type=float, metavar="USD", help="Written to it; 1.25 times the input.")


def _prices(desk: Desk, given: Namespace) -> None:
    session, model = desk.session, given.model
    if any(getattr(given, name) is not None for name in RATES):
        if model is None or given.input is None or given.output is None:
            raise UsageError("A price needs a model, its input and its output: MODEL --input USD --output USD.")
        extra = {"cache_read": given.cache_read, "cache_write": given.cache_write}
        session.prices[model] = TokenPrice(given.input, given.output, **extra)
    declared = [one.model for plan in session.plans for one in session.registry(plan).agents]
    wanted = [model] if model else [*(one or desk.model for one in declared), *session.prices]
    prices = Prices(session.prices)
    for name in dict.fromkeys(wanted or [desk.model]):
        print(tariff_text(name, *prices.tariff_of(name)))  # noqa: T201 - the answer


VERBS = {
    "prices": Verb(
        "Show prices per million tokens, or give a model one: MODEL --input USD --output USD.",
        _options,
        _prices,
        examples=("%agents prices", "%agents prices my-model --input 3 --output 15 --cache-read 0.30"),
    )
}
