"""A plan as its user holds it, and what makes it ready to run. One-line methods that call the rooms."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.api.run import Run
from agent_magic.api.session import checked_limits
from agent_magic.declare.baseline import one_agent
from agent_magic.declare.plan import Plan as DeclaredPlan
from agent_magic.declare.plan_json import plan_from_dict, plan_from_json, plan_to_dict
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.policy import Policy, as_policy
from agent_magic.errors import DeclarationError, PlanError, shown_value
from agent_magic.forecast.estimate.estimate import estimate
from agent_magic.forecast.estimate.value import Estimate
from agent_magic.forecast.pilot import pilot_agents
from agent_magic.forecast.sweep import Sweep, make_sweep
from agent_magic.live.ahead import count_ahead, foresee, terms_ahead
from agent_magic.live.driver import Driver
from agent_magic.live.earlier import Earlier
from agent_magic.live.playing import lay
from agent_magic.measure.compare import record_of
from agent_magic.providers.anthropic.client import as_provider
from agent_magic.providers.recorded import Deck
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.prices import Prices, TokenPrice
from agent_magic.record.results import RunRecord
from agent_magic.show.graph import static_bundle
from agent_magic.show.graph.dot import digraph
from agent_magic.show.notes import capped_note, filled_note, ledger_notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anthropic import AsyncAnthropic
    from graphviz import Digraph  # pyright: ignore[reportMissingTypeStubs] - it has none

    from agent_magic.api.session import Session
    from agent_magic.engine.admission.pool import Pool
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.live.playing import Player
    from agent_magic.providers.base import Provider
    from agent_magic.providers.recorded import Match
    from agent_magic.record.history import History
    from agent_magic.record.ledger.base import Ledger as AnyLedger

LOG = logging.getLogger("agent_magic")


class Plan(DeclaredPlan):
    """The frozen, validated graph of agents; see `agent_magic.declare.plan.Plan` for its arguments and relations."""

    async def run(  # noqa: PLR0913 - each by its name
        self,
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: AnyLedger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
        resume: Run | None = None,
        again: Iterable[str] | None = None,
    ) -> Run:
        """Run the plan.

        A failed agent is a result, not an error: look at `run.agents`, or call `run.raise_for_failures()`.

        Args:
            policy: How to run; `Policy()` by default.
            client: Who answers: a `Claude`, a client of the SDK, or a `Provider` of your own. By default `Claude()`,
                which takes the key from the environment.
            fresh: Buy again what the ledger has.
            ledger: Where answers are kept and served again from: a `Ledger`; none by default.
            prices: Your own prices by model, counted before the list.
            limits: Rate limits that you know, by model; others are learned.
            session: What this run shares with others, in place of `client`, `ledger`, `prices` and `limits`.
            resume: An earlier run to go on with: what succeeded in it and asks the same keeps its answer, at no cost.
            again: With `resume`: only these agents run again, though they succeeded; see `agent_magic.live.earlier`.

        Raises:
            NotConnected: There is no key; nothing was sent.
            DeclarationError: A prompt cannot be filled in; nothing was sent.
            UnknownAgent: `again` names one that is not in the plan.
            PlanError: `again` without `resume`; nothing was sent.
        """
        provider = as_provider(client) if session is None else session.client
        options: Any = {"client": None if session is not None else provider, "ledger": ledger, "prices": prices}
        options |= {"limits": limits, "session": session, "fresh": fresh, "resume": resume, "again": again}
        run = await _driven(start(self, policy, **options), ledger if session is None else session.ledger, provider)
        if session is not None:
            session.history.learn(run.record)
        return run

    def replay(self, path: str | Path, policy: Policy | None = None) -> Run:
        """Return the run that a cassette recorded of this plan: no key, no network, the recorded clock.

        At once and strict; `play` takes its time, or buys what is missing.

        Raises:
            CassetteError: The file is no cassette.
            ReplayMiss: The plan asks for something that was not recorded.
        """
        return Run(Deck(read_cassette(Path(path))).play(self, timeout_s=as_policy(policy).timeout_s))

    async def play(
        self,
        path: str | Path,
        policy: Policy | None = None,
        *,
        fill: bool = False,
        pace: float | None = None,
        ledger: AnyLedger | None = None,
        client: Provider | AsyncAnthropic | None = None,
        **more: Any,
    ) -> Run:
        """Play a cassette: the recorded run of this plan, in its own time or with its gaps bought.

        Args:
            path: The cassette.
            policy: How what is bought runs.
            fill: Buy what was not recorded, after what was; such agents have `source` `live`, the others `replay`.
            pace: Recorded seconds in one second: 1 plays it as it was, 4 four times as fast; `None` at once. What is
                bought takes the time it takes.
            ledger: Where what is bought is kept, as in `run`.
            client: Who answers what is bought, as in `run`.
            **more: `fresh` and `prices`, as in `run`.

        Raises:
            CassetteError: The file is no cassette, or has no texts to go on from.
            ReplayMiss: The plan asks for something that was not recorded; nothing was sent.
        """
        policy, deck = as_policy(policy), Deck(read_cassette(Path(path)), fill=fill, pace=pace)
        provider = as_provider(client)
        more |= {"client": provider, "ledger": ledger}
        playing = lay(deck, self, policy, lambda match: start(self, policy, recorded=match, **more))
        return Run(playing) if isinstance(playing, RunRecord) else await _driven(playing, ledger, provider)

    def baseline(self, *, model: str | None = None, max_tokens: int | None = None) -> Plan:
        """Return the same job as one agent with the same token cap; see `agent_magic.declare.baseline`."""
        return one_agent(self, model=model, max_tokens=max_tokens)

    def estimate(
        self,
        policy: Policy | None = None,
        *,
        client: Any = None,
        ledger: Any = None,
        pilot: Run | None = None,
        **more: Any,
    ) -> Estimate:
        """Say what a run may cost and take; nothing is sent. `more` is what `forecast.estimate.estimate` takes."""
        tried = None if pilot is None else record_of(pilot, "pilot")
        check_ledger(ledger)
        provider = as_provider(client)
        more.setdefault("ceilings", terms_ahead(provider, None, 0.0))
        if not isinstance(more.get("prices"), Prices):
            more["prices"] = Prices(more.get("prices"), seller=provider.price_list)
        return estimate(self, *foresee(self, provider, ledger, tried), policy, pilot=tried, **more)

    async def count_tokens(
        self, *, client: Provider | AsyncAnthropic | None = None, ledger: AnyLedger | None = None
    ) -> list[int | None]:
        """Have the API count the input of each agent, for `estimate(counted=...)`. Free; prompts go to the counter.

        Returns:
            Per agent, its input tokens, answers it waits for left out; `None` where the API does not say, or the ledger
            has its answer.

        Raises:
            DeclarationError: A prompt cannot be filled in.
        """
        return (await count_ahead(self, as_provider(client), ledger))[0]

    async def pilot(
        self, count: int = 3, policy: Policy | None = None, *, client: Any = None, ledger: Any = None, **more: Any
    ) -> Run:
        """Run a few agents that stand for the most others, to estimate the rest: `plan.estimate(pilot=...)`.

        Its answers are in the ledger, if there is one, and `plan.run(resume=...)` takes them over in any case: nothing
        is bought twice. For `more` see `run`, for the choice `agent_magic.forecast.pilot`.
        """
        names = self.pilot_agents(count, client=client, ledger=ledger)
        return await self.select(names).run(policy, client=client, ledger=ledger, **more)

    def pilot_agents(self, count: int = 3, *, client: Any = None, ledger: Any = None) -> list[str]:
        """Name the agents that `pilot` would run; what it may cost says `plan.select(names).estimate()`."""
        return pilot_agents(self, [answer is not None for answer in foresee(self, client, ledger)[1]], count)

    async def sweep(self, concurrency: Iterable[int], policy: Policy | None = None, **more: Any) -> Sweep[Run]:
        """Really run at each concurrency, beside forecasts from the first; `more` is for `run`. See `measure.sweep`."""
        return await make_sweep(lambda one: self.run(one, **more), concurrency, as_policy(policy))

    def to_dict(self) -> dict[str, Any]:
        """Write the plan as plain data; see `agent_magic.declare.plan_json`."""
        return plan_to_dict(self)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write the plan as JSON."""
        return json.dumps(plan_to_dict(self), indent=indent, ensure_ascii=False)

    def to_graphviz(self) -> Digraph:
        """Return the graph for the `graphviz` package: a rank per layer, edges that only order dashed."""
        return digraph(self)

    def to_dot(self) -> str:
        """Return the graph as DOT, the language of Graphviz; see `to_graphviz`."""
        return digraph(self).source

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Read a plan from plain data. Raises `PlanError` with the place of what is wrong."""
        return plan_from_dict(data, cls)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON. Raises `PlanError` with the place of what is wrong."""
        return plan_from_json(text, cls)

    def __repr__(self) -> str:
        return f"Plan({self.name!r}: {len(self)} agents in {self.depth} layers)"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return static_bundle(self)


def check_ledger(ledger: object) -> None:
    """Raise `DeclarationError` for what is no ledger, such as the name of one."""
    if ledger is not None and not hasattr(ledger, "begin"):
        raise DeclarationError(f"ledger={shown_value(ledger)} is no Ledger.", hint="Give Ledger('FILE').")


async def _driven(driver: Driver | Player, ledger: AnyLedger | None, provider: Provider) -> Run:
    """Let it run, and say what its numbers do not."""
    await driver.drive()
    notes = capped_note(driver.record, driver.policy), filled_note(driver.record)
    for note in (*notes, *ledger_notes(ledger), *provider.take_notes()):
        if note:
            LOG.warning(note)  # a Python warning could be made an error, and the paid run be lost with it
    return Run(driver.record, driver, prices=driver.prices)


def start(  # noqa: PLR0913 - the options of `Plan.run`
    plan: DeclaredPlan,
    policy: Policy | None = None,
    *,
    client: Provider | AsyncAnthropic | None = None,
    fresh: bool = False,
    ledger: AnyLedger | None = None,
    prices: Mapping[str, TokenPrice] | Prices | None = None,
    pacer: Pacer | None = None,
    pool: Pool | None = None,
    history: History | None = None,
    resume: Run | None = None,
    again: Iterable[str] | None = None,
    recorded: Match | None = None,
    limits: Mapping[str, Limits] | None = None,
    session: Session | None = None,
) -> Driver:
    """Make ready to run a plan; see `Plan.run`. `await driver.drive()` runs it, `driver.record` grows meanwhile.

    Without a pacer a provider with rate limits gets one of its own; runs with one pool share its slots. By a history
    the longest way to the end goes first.
    """
    if session is not None:
        if any(one is not None for one in (client, ledger, prices, limits, pacer, pool, history)):
            raise PlanError("Give either session= or client=, ledger=, prices= and limits=: a session has its own.")
        client, ledger, prices = session.client, session.ledger, session.prices
        pacer, pool, history = session.pacer, session.pool, session.history
    if not isinstance(plan, DeclaredPlan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"{shown_value(plan)} is no Plan. Give Plan([Agent('name', '...'), ...]).")
    policy, answering = as_policy(policy), as_provider(client)
    check_ledger(ledger)
    plan.check_prompts()
    if again is not None and resume is None:
        raise PlanError("again= says what of an earlier run is asked once more: give that run too, resume=RUN.")
    if pacer is None and (limits is not None or answering.is_limited):
        pacer = Pacer(checked_limits(limits))
    earlier = (
        None if resume is None else Earlier(record_of(resume, "resume"), answering.endpoint, plan=plan, again=again)
    )
    options: Any = {"ledger": ledger, "fresh": fresh, "pacer": pacer, "pool": pool, "history": history}
    options["recorded"] = recorded
    prices = prices if isinstance(prices, Prices) else Prices(prices, seller=answering.price_list)
    driver = Driver(plan, policy, answering, earlier=earlier, prices=prices, **options)
    if earlier is not None:
        driver.skip(earlier.left_out)
    return driver
