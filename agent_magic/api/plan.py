"""`Plan`: what users hold of a plan. Methods that call the rooms, and `start`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.api.asking import asker_of
from agent_magic.api.choosing import with_models
from agent_magic.api.run import Run
from agent_magic.api.session import check_loop, session_of
from agent_magic.declare.baseline import one_agent
from agent_magic.declare.cells import declared, to_cell, values_note
from agent_magic.declare.plan import Plan as DeclaredPlan
from agent_magic.declare.plan_json import (
    attachments_of,
    files_to_json,
    plan_from_dict,
    plan_from_json,
    plan_to_dict,
)
from agent_magic.engine.policy import Policy, as_policy
from agent_magic.errors import PlanError, shown_value
from agent_magic.forecast.advice.advice import Advice, lint
from agent_magic.forecast.estimate.estimate import estimate
from agent_magic.forecast.estimate.value import Estimate
from agent_magic.forecast.loads import loads_frame, under_load, verdict_on
from agent_magic.forecast.pilot import pilot_agents
from agent_magic.forecast.sweep import Sweep, make_sweep
from agent_magic.live.ahead import count_ahead, foresee, terms_ahead
from agent_magic.live.driver import Driver
from agent_magic.live.earlier import Earlier
from agent_magic.live.playing import lay
from agent_magic.live.vitals import Sampling
from agent_magic.measure.compare import record_of
from agent_magic.measure.each import answers_frame
from agent_magic.measure.plans import diff_frame, todo_frame
from agent_magic.providers.anthropic.models import max_output_tokens
from agent_magic.providers.recorded import Deck
from agent_magic.record.cassette.reading import read_cassette
from agent_magic.record.prices import TokenPrice
from agent_magic.record.results import RunRecord
from agent_magic.show.graph import static_bundle
from agent_magic.show.graph.dot import digraph
from agent_magic.show.notes import ending_notes, ledger_notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from anthropic import AsyncAnthropic
    from graphviz import Digraph  # pyright: ignore[reportMissingTypeStubs] - it has none

    from agent_magic.api.session import Session
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.forecast.loads import Load, OnRateLimit
    from agent_magic.live.people import Asker
    from agent_magic.live.playing import Player
    from agent_magic.providers.base import Provider
    from agent_magic.providers.recorded import Match
    from agent_magic.record.history import History
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.terms import Ceilings

LOG = logging.getLogger("agent_magic")


class Plan(DeclaredPlan):
    """The frozen, validated graph of agents; see `agent_magic.declare.plan.Plan` for its arguments and relations.

    Its methods take either `client`, `ledger`, `prices` and `limits`, or a `session` that has them.
    """

    async def run(  # noqa: PLR0913 - each by its name
        self,
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
        resume: Run | None = None,
        again: Iterable[str] | None = None,
        ask: Asker | None = None,
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
            ask: Asks a person whether a call may be made or an answer passed on: an async function that takes a
                `Question` and returns a `Verdict`. `Desk(plan).ask` keeps questions for other code to answer. By
                default a question on the terminal; where there is none, nobody can agree, and it is denied at once.

        Raises:
            NotConnected: There is no key; nothing was sent.
            DeclarationError: A prompt cannot be filled in, or there is no model of a name; nothing was sent.
            UnknownAgent: `again` names one that is not in the plan.
            PlanError: `again` without `resume`; nothing was sent.
        """
        check_loop()
        shared = session_of(session, client=client, ledger=ledger, prices=prices, limits=limits)
        more: Any = {"fresh": fresh, "resume": resume, "again": again, "asker": asker_of(ask) if self.special else ask}
        driver = _driver(self, policy, shared, alone=session is None, **more)
        return await _driven(driver, shared, alone=session is None)

    def replay(self, path: str | Path, policy: Policy | None = None) -> Run:
        """Return the run that a cassette recorded of this plan: no key, no network, the recorded clock.

        At once and strict; `play` takes its time, or buys what is missing.

        Args:
            path: The cassette.
            policy: Its deadlines count as part of what is asked.

        Raises:
            CassetteError: The file is not a cassette.
            ReplayMiss: The plan asks for something that was not recorded.
        """
        deck = Deck(read_cassette(path))
        plan = with_models(self, session_of(None), deck.models)
        return Run(deck.play(plan, timeout_s=as_policy(policy).timeout_s))

    async def play(  # noqa: PLR0913 - each by its name
        self,
        path: str | Path,
        policy: Policy | None = None,
        *,
        fill: bool = False,
        pace: float | None = None,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
    ) -> Run:
        """Play a cassette: the recorded run of this plan, in its own time or with its gaps bought.

        Args:
            path: The cassette.
            policy: How what is bought runs.
            fill: Buy what was not recorded, after what was; such agents have `source` `live`, the others `replay`.
            pace: Recorded seconds in one second: 1 plays it as it was, 4 four times as fast; `None` at once. What is
                bought takes the time it takes.
            client: Who answers what is bought, as in `run`.
            fresh: Buy again what the ledger has.
            ledger: Where what is bought is kept, as in `run`.
            prices: Your own prices by model, as in `run`.
            limits: Rate limits that you know, as in `run`.
            session: In place of `client`, `ledger`, `prices` and `limits`, as in `run`.

        Raises:
            CassetteError: The file is not a cassette, or has no texts to continue from.
            ReplayMiss: The plan asks for something that was not recorded; nothing was sent.
        """
        check_loop()
        shared = session_of(session, client=client, ledger=ledger, prices=prices, limits=limits)
        policy, deck, alone = as_policy(policy), Deck(read_cassette(path), fill=fill, pace=pace), session is None

        plan = with_models(self, shared, deck.models)

        def buy(match: Match) -> Driver:
            return _driver(plan, policy, shared, alone=alone, fresh=fresh, recorded=match, asker=asker_of(None))

        playing = lay(deck, plan, policy, buy)
        if isinstance(playing, RunRecord):
            return Run(playing, session=session)
        return await _driven(playing, shared, alone=alone)

    def baseline(self, *, model: str | None = None, max_tokens: int | None = None) -> Plan:
        """Return the same job as one agent; see `agent_magic.declare.baseline`.

        Args:
            model: Its model; by default the last agent's.
            max_tokens: Its token cap; by default the sum of the agents' caps, or the most that its model gives.
        """
        return one_agent(self, model=model, max_tokens=max_tokens, most_of=max_output_tokens)

    def estimate(  # noqa: PLR0913 - what a plan can be estimated by, each with its name
        self,
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        session: Session | None = None,
        history: History | None = None,
        pilot: Run | None = None,
        counted: Sequence[int | None] | None = None,
        budget_usd: float | None = None,
        ceilings: Ceilings | None = None,
        simulated: bool = False,
    ) -> Estimate:
        """Estimate what a run may cost and take. Nothing is sent.

        Args:
            policy: How it will run; `Policy()` by default.
            client: Who would answer, as in `run`.
            fresh: Estimate as if the ledger were empty.
            ledger: Where answers are that need not be bought, as in `run`.
            prices: Your own prices by model, as in `run`.
            session: In place of `client`, `ledger` and `prices`, as in `run`. Its limits and history count too.
            history: Earlier answers; by default the session's.
            pilot: A run of a few of the agents, such as `await plan.pilot(3)`: the rest is estimated by it.
            counted: Per agent, its exact input, such as `await plan.count_tokens()`.
            budget_usd: A budget to ask about; by default the policy's.
            ceilings: Rate limits by model class; by default what the session has learned.
            simulated: Estimate by simulated answers, and no others.

        Raises:
            DeclarationError: A prompt cannot be filled in, or there is no model of a name.
        """
        shared = session_of(session, client=client, ledger=ledger, prices=prices)
        tried, client = None if pilot is None else record_of(pilot, "pilot"), shared.client
        plan = with_models(self, shared)
        shared.check_models(sorted(plan.asked))
        return estimate(
            plan,
            *foresee(plan, client, None if fresh else shared.ledger, tried),
            as_policy(policy, client.room),
            history=history if history is not None or session is None else session.history,
            budget_usd=budget_usd,
            prices=shared.price_book(),
            counted=counted,
            ceilings=terms_ahead(plan, client, shared.pacer) if ceilings is None else ceilings,
            simulated=simulated,
            pilot=tried,
            batch_times_s=shared.batch_times_s,
        )

    def scenario(
        self,
        load: Load,
        policy: Policy | None = None,
        *,
        on_limit: OnRateLimit = "queue",
        rpm: float | None = None,
        colleague: float = 0.5,
        session: Session | None = None,
    ) -> Run:
        """Forecast the plan under a named load of the account: a run like any other. Nothing is sent.

        Args:
            load: `off_peak`, `near_rpm`, `tpm_hit` or `colleague`; see `agent_magic.forecast.loads`.
            policy: How to run.
            on_limit: What becomes of requests that the limit has no room for: `queue` or `reject`.
            rpm: The account's requests a minute; by default as many as the plan has.
            colleague: The part of the account that a colleague uses, from 0 to below 1.
            session: Whose history, prices and ledger that counts.

        Raises:
            DeclarationError: A word is not known, or a number out of its range.
        """
        found = self.estimate(policy, session=session)
        record = under_load(found, load, on_limit=on_limit, rpm=rpm, colleague=colleague).record
        return Run(record or found.likely)

    def scenarios(
        self,
        policy: Policy | None = None,
        *,
        rpm: float | None = None,
        colleague: float = 0.5,
        session: Session | None = None,
    ) -> pd.DataFrame:
        """Return what becomes of the plan under each named load, queued and rejected: a row each. Nothing is sent.

        Args:
            policy: How to run.
            rpm: As in `scenario`, and so on.
            colleague: See `scenario`.
            session: See `scenario`.
        """
        frame = loads_frame(self.estimate(policy, session=session), rpm=rpm, colleague=colleague)
        frame.attrs["verdict"] = verdict_on(frame, "rpm=1")
        return frame

    def lint(self, estimate: Estimate | None = None, *, session: Session | None = None) -> Advice:
        """Check the plan before it runs: needless edges, unused answers, text that is sent for nothing, ...

        The rules are those of `run.advise()`; seconds and dollars are forecast from an estimate. Nothing is sent.

        Args:
            estimate: What `plan.estimate()` returned; by default it is made now.
            session: Whose history, prices and limits that counts.
        """
        prices = None if session is None else session.price_book(lambda _: None)  # the estimate tells which are unknown
        return lint(estimate or self.estimate(session=session), prices=prices)

    def todo(self, run: Run | None = None, estimate: Estimate | None = None) -> pd.DataFrame:
        """Return what is to be done: a row per step with status, owner and what it waits for.

        Args:
            run: A run of the plan, for the statuses.
            estimate: What `plan.estimate()` returned, for seconds and dollars.
        """
        rows = [] if estimate is None else [(one.seconds.likely, one.cost_usd) for one in estimate.expected]
        return todo_frame(self, None if run is None else record_of(run, "todo"), rows)

    def diff(self, other: DeclaredPlan) -> pd.DataFrame:
        """Return what another version of the plan changes: a row per step, option or value.

        Args:
            other: The other version, such as `run.plan`.
        """
        return diff_frame(self, other)

    async def count_tokens(
        self,
        *,
        client: Provider | AsyncAnthropic | None = None,
        ledger: SqliteLedger | None = None,
        session: Session | None = None,
    ) -> list[int | None]:
        """Ask the API to count the input of each agent, for `estimate(counted=...)`. Free; prompts go to the counter.

        Args:
            client: Who counts, as in `run`.
            ledger: Where answers are that need no count, as in `run`.
            session: In place of `client` and `ledger`, as in `run`.

        Returns:
            Per agent, its input tokens, answers it waits for left out; `None` where the API does not say, the ledger
            has its answer, or the plan is large: then a few of each kind are counted, and stand for the others.

        Raises:
            DeclarationError: A prompt cannot be filled in.
        """
        check_loop()
        shared = session_of(session, client=client, ledger=ledger)
        return (await count_ahead(with_models(self, shared), shared.client, shared.ledger))[0]

    async def pilot(
        self,
        count: int = 3,
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
    ) -> Run:
        """Run a few agents that stand for the most others, to estimate the rest: `plan.estimate(pilot=...)`.

        Its answers are in the ledger, if there is one, and `plan.run(resume=...)` takes them over in any case: nothing
        is bought twice. For the choice see `agent_magic.forecast.pilot`.

        Args:
            count: How many, at most.
            policy: How to run.
            client: Who answers, as in `run`.
            fresh: Buy again what the ledger has.
            ledger: Where answers are kept, as in `run`.
            prices: Your own prices by model, as in `run`.
            limits: Rate limits that you know, as in `run`.
            session: In place of `client`, `ledger`, `prices` and `limits`, as in `run`.
        """
        names = self.pilot_agents(count, client=client, fresh=fresh, ledger=ledger, session=session)
        own: Any = {"client": client, "ledger": ledger, "prices": prices, "limits": limits, "session": session}
        return await self.select(names).run(policy, fresh=fresh, **own)

    def pilot_agents(
        self,
        count: int = 3,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        session: Session | None = None,
    ) -> list[str]:
        """Name the agents that `pilot` would run; what it may cost says `plan.select(names).estimate()`.

        Args:
            count: How many, at most.
            client: Who would answer, as in `run`.
            fresh: Choose as if the ledger were empty.
            ledger: Where answers are that need no trial, as in `run`.
            session: In place of `client` and `ledger`, as in `run`.
        """
        shared = session_of(session, client=client, ledger=ledger)
        plan = with_models(self, shared)
        held = foresee(plan, shared.client, None if fresh else shared.ledger)[1]
        return pilot_agents(plan, [answer is not None for answer in held], count)

    async def sweep(
        self,
        concurrency: Iterable[int],
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, TokenPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
    ) -> Sweep[Run]:
        """Really run at each concurrency, beside forecasts from the first run; see `agent_magic.forecast.sweep`.

        Args:
            concurrency: The values, such as `[1, 2, 4]`.
            policy: How to run otherwise.
            client: Who answers, as in `run`.
            fresh: Buy again what the ledger has. Without it a ledger makes the later runs free, and says nothing.
            ledger: Where answers are kept, as in `run`.
            prices: Your own prices by model, as in `run`.
            limits: Rate limits that you know, as in `run`.
            session: In place of `client`, `ledger`, `prices` and `limits`, as in `run`.
        """
        own: Any = {"client": client, "ledger": ledger, "prices": prices, "limits": limits, "session": session}
        return await make_sweep(lambda one: self.run(one, fresh=fresh, **own), concurrency, as_policy(policy))

    def to_dict(self) -> dict[str, Any]:
        """Write the plan as plain data; see `agent_magic.declare.plan_json`."""
        return plan_to_dict(self) | self._files()

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write the plan as JSON.

        Args:
            indent: Spaces for each level; `None` writes one line.
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_cell(self) -> str:
        """Write the plan as one `%%agents` cell; see `agent_magic.declare.cells`.

        Its values are the notebook's, and not in it: a comment above the first heading says which to define, and how.

        Raises:
            PlanError: A step is a function, or has options that a cell cannot hold.
        """
        about = [text for text in (self.description, values_note(self)) if text]
        return to_cell(declared(self), name=self.name, description="\n\n".join(about))

    def _files(self) -> dict[str, Any]:
        """Return the bytes of pictures and documents, each once."""
        found = files_to_json(attachments_of(self))
        return {"attachments": found} if found else {}

    def to_graphviz(self) -> Digraph:
        """Return the graph for the `graphviz` package: a rank per layer, edges that only order dashed."""
        return digraph(self)

    def to_dot(self) -> str:
        """Return the graph as DOT, the language of Graphviz; see `to_graphviz`."""
        return digraph(self).source

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Read a plan from plain data. Raises `PlanError` with the place of what is wrong.

        Args:
            data: What `to_dict` returned, or a plan as coordinators write it.
        """
        return plan_from_dict(data, cls)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON. Raises `PlanError` with the place of what is wrong.

        Args:
            text: The same as JSON.
        """
        return plan_from_json(text, cls)

    def __repr__(self) -> str:
        return f"Plan({self.name!r}: {len(self)} agents in {self.depth} layers)"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return static_bundle(self)


async def _driven(driver: Driver | Player, session: Session, *, alone: bool) -> Run:
    """Drive a run to its end and log what its numbers do not say."""
    with Sampling(driver.now, driver.samples):
        await driver.drive()
    if alone:
        session.keep_limits()
    else:
        session.settle(driver.record)
    record = driver.record
    for note in (*ending_notes(record, driver.policy), *ledger_notes(session.ledger), *session.client.take_notes()):
        if note:
            LOG.warning(note)  # a Python warning could be made an error, and the paid run be lost with it
    history = None if alone else session.history
    return Run(driver.record, driver, history=history, prices=driver.prices, session=session)


def start(  # noqa: PLR0913 - the options of `Plan.run`
    plan: DeclaredPlan,
    policy: Policy | None = None,
    *,
    client: Provider | AsyncAnthropic | None = None,
    fresh: bool = False,
    ledger: SqliteLedger | None = None,
    prices: Mapping[str, TokenPrice] | None = None,
    limits: Mapping[str, Limits] | None = None,
    session: Session | None = None,
    resume: Run | None = None,
    again: Iterable[str] | None = None,
    recorded: Match | None = None,
    ask: Asker | None = None,
) -> Driver:
    """Prepare a run of a plan: `run = am.Run(await driver.drive())`. `driver.record` grows meanwhile.

    Args:
        plan: What to run.
        policy: How; `Policy()` by default.
        client: Who answers, as in `Plan.run`.
        fresh: Buy again what the ledger has.
        ledger: Where answers are kept, as in `Plan.run`.
        prices: Your own prices by model, as in `Plan.run`.
        limits: Rate limits that you know, as in `Plan.run`.
        session: In place of `client`, `ledger`, `prices` and `limits`, as in `Plan.run`.
        resume: An earlier run to go on with, as in `Plan.run`.
        again: With `resume`: only these agents run again, as in `Plan.run`.
        recorded: What a cassette has of the plan: only the rest is bought, after it.
        ask: Asks a person, as in `Plan.run`; `None` where nobody is there.

    Raises:
        DeclarationError: A prompt cannot be filled in, or there is no model of a name; nothing was sent.
        UnknownAgent: `again` names one that is not in the plan.
        PlanError: It is not a plan, or `again` comes without `resume`; nothing was sent.
    """
    shared = session_of(session, client=client, ledger=ledger, prices=prices, limits=limits)
    more: Any = {"fresh": fresh, "resume": resume, "again": again, "recorded": recorded, "asker": ask}
    return _driver(plan, policy, shared, alone=session is None, **more)


def _driver(  # noqa: PLR0913 - the options of `Plan.run`
    plan: DeclaredPlan,
    policy: Policy | None,
    session: Session,
    *,
    alone: bool,
    fresh: bool = False,
    resume: Run | None = None,
    again: Iterable[str] | None = None,
    recorded: Match | None = None,
    asker: Asker | None = None,
) -> Driver:
    """Return the driver of a run. One that is `alone` in its session shares no slots and no history."""
    if not isinstance(plan, DeclaredPlan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"{shown_value(plan)} is not a Plan. Give Plan([Agent('name', '...'), ...]).")
    client = session.client
    policy = as_policy(policy, client.room)
    plan.check_prompts()
    plan = with_models(plan, session)
    if recorded is None:
        session.check_models(sorted(plan.asked))
    if again is not None and resume is None:
        raise PlanError("again= says what of an earlier run is asked once more: give that run too, resume=RUN.")
    earlier = None if resume is None else Earlier(record_of(resume, "resume"), client.endpoint, plan=plan, again=again)
    session.recall_limits()
    paced = client.is_limited or bool(session.pacer.given)
    driver = Driver(
        plan,
        policy,
        client,
        ledger=session.ledger,
        earlier=earlier,
        recorded=recorded,
        fresh=fresh,
        prices=session.price_book(),
        pacer=session.pacer if paced else None,
        sharing=session.sharing() if paced and policy.shared == "on" else None,
        pool=None if alone else session.pool,
        history=None if alone else session.history,
        frame_of=answers_frame,
        alerts=session.alerts,
        asker=asker,
    )
    if earlier is not None:
        driver.skip(earlier.left_out)
    return driver
