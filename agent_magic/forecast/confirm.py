"""Whether a run is asked about before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.forecast.estimate.value import Expected

Confirmation = Literal["go", "ask", "note"]


class Outlay(NamedTuple):
    """What a run may cost, by an estimate.

    Attributes:
        agents: How many are going to be asked.
        usd: The dollars expected, of those whose price is known.
        most_usd: Dollars if every answer of those fills its `max_tokens`.
        unpriced: How many have no known price.
    """

    agents: int
    usd: float
    most_usd: float
    unpriced: int


def outlay(expected: Iterable[Expected]) -> Outlay:
    """Add up what is expected of agents."""
    all_ = list(expected)
    known = [(one.cost_usd, one.most_usd) for one in all_ if one.cost_usd is not None and one.most_usd is not None]
    return Outlay(len(all_), sum(one for one, _ in known), sum(one for _, one in known), len(all_) - len(known))


def confirmation(what: Outlay, *, above_agents: int, above_usd: float, yes: bool, can_ask: bool) -> Confirmation:
    """Say whether a run just goes, is asked about first, or goes with a note of what it is about to do.

    Without anybody to answer nothing is asked: a notebook that runs by itself must not hang, and its budget is its cap.

    Args:
        what: What the run may cost.
        above_agents: More agents than this are asked about; 0 is never.
        above_usd: More dollars than this are asked about; 0 is never. An unknown price does not count.
        yes: The user has said yes already.
        can_ask: Whether somebody is there to answer.
    """
    large = 0 < above_agents < what.agents or 0 < above_usd < what.usd
    if yes or not large:
        return "go"
    return "ask" if can_ask else "note"
