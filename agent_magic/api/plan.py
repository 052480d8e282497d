"""`Plan`: what users hold of a plan; and `plan_for`: a plan for a goal, written by a coordinator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic import declare, forecast, live, measure, providers, record, show
from agent_magic.api.choosing import as_asked, with_models
from agent_magic.api.run import Run
from agent_magic.api.running import asker_of, drive, driver_of, run_plan
from agent_magic.api.session import check_loop, session_of
from agent_magic.declare.cells import to_cell, values_note
from agent_magic.declare.coordinator import COORDINATOR, coordinator, read_plan
from agent_magic.declare.declared import declared
from agent_magic.declare.plan import Plan as DeclaredPlan
from agent_magic.declare.plan_json import (
    attachments_of,
    files_to_json,
    plan_from_dict,
    plan_from_json,
    plan_to_dict,
)
from agent_magic.engine.policy import Policy, as_policy
from agent_magic.live.ahead import count_ahead, foresee, statuses, terms_ahead
from agent_magic.providers.anthropic.models import max_output_tokens
from agent_magic.record.history import History
from agent_magic.record.prices import ModelPrice
from agent_magic.record.results import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from anthropic import AsyncAnthropic
    from graphviz import Digraph  # pyright: ignore[reportMissingTypeStubs] - it has none

    from agent_magic.api.session import Session
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.calibration import Sweep
    from agent_magic.forecast.estimate.value import Estimate, Load, OnRateLimit
    from agent_magic.live.driver import Driver
    from agent_magic.live.people import Asker
    from agent_magic.live.playing import Player
    from agent_magic.providers.base import Provider
    from agent_magic.providers.recorded import Match
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.terms import Ceilings


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
        prices: Mapping[str, ModelPrice] | None = None,
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
            client: The provider: a `Claude`, a client of the SDK, or a `Provider` of your own. Default `Claude()`,
                which takes the key from the environment.
            fresh: Buy again, despite answers in the ledger.
            ledger: A `Ledger` to store and reuse answers; default none.
            prices: Your own prices by model, which win over the list.
            limits: Known rate limits, by model; others are learned.
            session: State shared with other runs, instead of `client`, `ledger`, `prices` and `limits`.
            resume: An earlier run to continue: successful agents with the same request keep their answers, at no cost.
            again: With `resume`: run only these agents again, even if successful; see `agent_magic.live.answer_cache`.
            ask: Asks a person to approve a call or an answer: an async function from a `Question` to a `Verdict`.
                `Desk(plan).ask` holds questions for other code to answer. Default: a question on the terminal; without
                one, approval is denied at once.

        Raises:
            NotConnected: There is no key; nothing was sent.
            DeclarationError: A prompt cannot be filled in, a model does not exist, or the provider lacks a feature an
                agent needs; nothing was sent.
            UnknownAgent: `again` names an agent that is not in the plan.
            PlanError: `again` without `resume`; nothing was sent.
        """
        shared = session_of(session, client=client, ledger=ledger, prices=prices, limits=limits)
        alone, earlier = session is None, None if resume is None else measure.record_of(resume, "resume")
        driver = await run_plan(self, policy, shared, alone=alone, fresh=fresh, resume=earlier, again=again, ask=ask)
        return _run_of(driver, shared, alone=alone)

    def replay(self, path: str | Path, policy: Policy | None = None) -> Run:
        """Return the run of this plan in a cassette: no key, no network, the recorded clock.

        Immediate and strict; `play` takes its time, or buys missing answers.

        Args:
            path: The cassette.
            policy: Its deadlines are part of the requests.

        Raises:
            CassetteError: The file is not a cassette.
            ReplayMiss: A request of the plan was not recorded.
        """
        deck = providers.Deck(record.read_cassette(path))
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
        prices: Mapping[str, ModelPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
    ) -> Run:
        """Play a cassette: the recorded run of this plan, in its own time or with missing answers bought.

        Args:
            path: The cassette.
            policy: The policy for bought answers.
            fill: Buy missing answers, after the recorded ones; their `source` is `live`, the others' `replay`.
            pace: Recorded seconds per second: 1 plays it as it was, 4 four times as fast; `None` at once. Bought
                answers take their own time.
            client: The provider of bought answers, as in `run`.
            fresh: Buy again, despite answers in the ledger.
            ledger, prices, limits, session: As in `run`.

        Raises:
            CassetteError: The file is not a cassette, or has no texts to continue from.
            ReplayMiss: A request of the plan was not recorded; nothing was sent.
        """
        check_loop()
        shared = session_of(session, client=client, ledger=ledger, prices=prices, limits=limits)
        policy, alone = as_policy(policy), session is None
        deck = providers.Deck(record.read_cassette(path), fill=fill, pace=pace)

        plan = with_models(self, shared, deck.models)

        def buy(match: Match) -> Driver:
            return driver_of(plan, policy, shared, alone=alone, fresh=fresh, recorded=match, asker=asker_of(None))

        playing = live.lay(deck, plan, policy, buy)
        if isinstance(playing, RunRecord):
            return Run(playing, session=session)
        await drive(playing, shared, alone=alone)
        return _run_of(playing, shared, alone=alone)

    def baseline(self, *, model: str | None = None, max_tokens: int | None = None) -> Plan:
        """Return the same job as one agent; see `agent_magic.declare.baseline`.

        Args:
            model: Its model; by default the last agent's.
            max_tokens: Its token cap; by default the sum of the agents' caps, or its model's maximum.
        """
        return declare.one_agent(self, model=model, max_tokens=max_tokens, most_of=max_output_tokens)

    def estimate(  # noqa: PLR0913 - the bases of an estimate, each with its name
        self,
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        session: Session | None = None,
        history: History | None = None,
        pilot: Run | None = None,
        counted: Sequence[int | None] | None = None,
        budget_usd: float | None = None,
        ceilings: Ceilings | None = None,
        simulated: bool = False,
    ) -> Estimate:
        """Estimate the cost and time of a run. Nothing is sent.

        Args:
            policy: How it will run; `Policy()` by default.
            fresh: Estimate as if the ledger were empty.
            client, ledger, prices: As in `run`.
            session: Instead of `client`, `ledger` and `prices`, as in `run`. Its limits and history count too.
            history: Earlier answers; default the session's.
            pilot: A run of a few agents, such as `await plan.pilot(3)`, from which the rest is estimated.
            counted: Exact input per agent, such as `await plan.count_tokens()`.
            budget_usd: A budget to check; default the policy's.
            ceilings: Rate limits by model class; default those learned by the session.
            simulated: Use simulated answers only.

        Raises:
            DeclarationError: A prompt cannot be filled in, a model does not exist, or the provider lacks a feature an
                agent needs.
        """
        shared = session_of(session, client=client, ledger=ledger, prices=prices)
        tried, client = None if pilot is None else measure.record_of(pilot, "pilot"), shared.client
        policy = as_policy(policy, client.room)
        plan = as_asked(self, policy, shared)
        shared.check_plan(plan, policy)
        return forecast.estimate_plan(
            plan,
            *foresee(plan, client, None if fresh else shared.ledger, tried),
            policy,
            history=history if history is not None or session is None else session.history,
            budget_usd=budget_usd,
            prices=shared.price_book(),
            counted=counted if len(plan) == len(self) else None,  # of other requests
            ceilings=terms_ahead(plan, client, shared.pacer) if ceilings is None else ceilings,
            simulated=simulated,
            pilot=tried,
            batch_times_s=shared.batch_times_s,
        )

    def whatif(self, policy: Policy | None = None, *, session: Session | None = None, **given: Any) -> pd.DataFrame:
        """Forecast the plan's dollars and seconds: the frame of `run.whatif`, before a run. Nothing is sent.

        A row per combination of values. `basis` says if by earlier answers or by assumptions; the range is
        `wall_low_s` to `wall_high_s` and `cost_low_usd` to `cost_high_usd`. `plan.estimate(...).whatif(...)` asks the
        same with a client, a pilot or counted prompts.

        Args:
            policy: How it would run; `Policy()` by default.
            session: Its history, prices, limits and ledger count.
            **given: The arguments of `run.whatif`, each a value or a list of values, such as
                `model=["claude-haiku-5-5", "claude-opus-5-5"]` and `concurrency=[1, 4, 16]`.

        Raises:
            DeclarationError: An argument or value is unknown, or misspelt.
            UnknownAgent: An agent is not in the plan.
        """
        with show.Progress("scenarios") as progress:
            ahead = self.estimate(policy, session=session).ahead()
            return forecast.whatif.whatif_frame(ahead, given, tell=progress.tell)

    def explore(self, estimate: Estimate | None = None, *, session: Session | None = None) -> None:
        """Show the panel of `run.explore` before a run: controls, the forecast, its timeline. Nothing is sent.

        It needs a notebook; a script uses `whatif`.

        Args:
            estimate: Result of `plan.estimate()`; default a new one.
            session: Its history, prices, limits and ledger count.
        """
        show.explore.explore(show.Explorer((estimate or self.estimate(session=session)).ahead()))

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
            load: `off_peak`, `near_rpm`, `tpm_hit` or `colleague`; see `agent_magic.forecast.estimate.value.LOADS`.
            policy: How to run.
            on_limit: `queue` or `reject` requests beyond the limit.
            rpm: The account's requests per minute; default as many as the plan has.
            colleague: The colleague's share of the account, from 0 to below 1.
            session: Its history, prices and ledger count.

        Raises:
            DeclarationError: An unknown word, or a number out of its range.
        """
        found = self.estimate(policy, session=session)
        record = forecast.under_load(found, load, on_limit=on_limit, rpm=rpm, colleague=colleague).record
        return Run(record or found.likely)

    def scenarios(
        self,
        policy: Policy | None = None,
        *,
        rpm: float | None = None,
        colleague: float = 0.5,
        session: Session | None = None,
    ) -> pd.DataFrame:
        """Forecast the plan under each named load, queued and rejected: a row each. Nothing is sent.

        Args:
            policy: How to run.
            rpm: As in `scenario`.
            colleague: See `scenario`.
            session: See `scenario`.
        """
        frame = forecast.loads_frame(self.estimate(policy, session=session), rpm=rpm, colleague=colleague)
        frame.attrs["verdict"] = forecast.verdict_on(frame, "rpm=1")
        return frame

    def lint(self, estimate: Estimate | None = None, *, session: Session | None = None) -> Advice:
        """Check the plan before it runs: needless edges, unused answers, text sent for nothing, ...

        The rules are those of `run.advise()`; seconds and dollars are forecast from an estimate. Nothing is sent.

        Args:
            estimate: Result of `plan.estimate()`; default a new one.
            session: Its history, prices and limits count.
        """
        prices = None if session is None else session.price_book(lambda _: None)  # the estimate tells which are unknown
        return forecast.lint(estimate or self.estimate(session=session), prices=prices)

    def todo(self, run: Run | None = None, estimate: Estimate | None = None) -> pd.DataFrame:
        """Return a checklist: a row per step with status, owner and the steps it waits for.

        Args:
            run: A run of the plan, for the statuses; `stale` steps ran in it and would be asked again.
            estimate: Result of `plan.estimate()`, for seconds and dollars.
        """
        rows = [] if estimate is None else [(one.seconds.likely, one.cost_usd) for one in estimate.expected]
        return measure.todo_frame(self, {} if run is None else statuses(self, measure.record_of(run, "todo")), rows)

    def diff(self, other: DeclaredPlan) -> pd.DataFrame:
        """Return the changes in another version of the plan: a row per step, option or value.

        Args:
            other: The other version, such as `run.plan`.
        """
        return measure.diff_frame(self, other)

    async def count_tokens(
        self,
        *,
        client: Provider | AsyncAnthropic | None = None,
        ledger: SqliteLedger | None = None,
        session: Session | None = None,
    ) -> list[int | None]:
        """Count the input of each agent with the API, for `estimate(counted=...)`. Free; prompts go to the counter.

        Args:
            client, ledger, session: As in `run`.

        Returns:
            Input tokens per agent, without missing answers of parents; `None` if the API does not count, the ledger has
            its answer, or the plan is large: then a few of each kind are counted, and represent the others.

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
        prices: Mapping[str, ModelPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
    ) -> Run:
        """Run the few most representative agents, to estimate the rest: `plan.estimate(pilot=...)`.

        Its answers are stored in the ledger, if there is one, and `plan.run(resume=...)` reuses them in any case:
        nothing is bought twice. For the choice see `agent_magic.forecast.estimate.value.pilot_agents`.

        Args:
            count: Maximum number of agents.
            policy: How to run.
            fresh: Buy again, despite answers in the ledger.
            client, ledger, prices, limits, session: As in `run`.
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
        """Return the agents that `pilot` would run; `plan.select(names).estimate()` has their cost.

        Args:
            count: Maximum number of agents.
            fresh: Choose as if the ledger were empty.
            client, ledger, session: As in `run`.
        """
        shared = session_of(session, client=client, ledger=ledger)
        plan = with_models(self, shared)
        held = foresee(plan, shared.client, None if fresh else shared.ledger)[1]
        return forecast.pilot_agents(plan, [answer is not None for answer in held], count)

    async def sweep(  # noqa: PLR0913 - as `run`, and the swept values
        self,
        concurrency: Iterable[int],
        policy: Policy | None = None,
        *,
        client: Provider | AsyncAnthropic | None = None,
        fresh: bool = False,
        ledger: SqliteLedger | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        limits: Mapping[str, Limits] | None = None,
        session: Session | None = None,
        sample: int | None = None,
    ) -> Sweep[Run]:
        """Run the plan at each concurrency, beside forecasts from the first; see `agent_magic.forecast.calibration`.

        The runs are evidence about their server for what-ifs of each other, and of all runs of a session.

        Args:
            concurrency: The values, such as `[1, 2, 4]`.
            policy: How to run otherwise.
            fresh: Buy again, despite answers in the ledger, which would make later runs free and meaningless.
            client, ledger, prices, limits, session: As in `run`.
            sample: Number of agents to run, the most representative ones; `None` for all.
        """
        own: Any = {"client": client, "ledger": ledger, "prices": prices, "limits": limits, "session": session}
        plan = self if sample is None else self.select(forecast.pilot_agents(self, [False] * len(self), sample))
        found = await forecast.make_sweep(lambda one: plan.run(one, fresh=fresh, **own), concurrency, as_policy(policy))
        for run in found.runs if session is None else ():  # each knows the server by all of them
            run.history = History.beside(
                [one.record for one in found.runs], None if ledger is None else ledger.seen_runs
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Write the plan as plain data; see `agent_magic.declare.plan_json`."""
        files = files_to_json(attachments_of(self))
        return plan_to_dict(self) | ({"attachments": files} if files else {})

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write the plan as JSON.

        Args:
            indent: Spaces for each level; `None` writes one line.
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_cell(self) -> str:
        """Write the plan as one `%%agents` cell; see `agent_magic.declare.cells`.

        Its values are not in it: a comment above the first heading says which to define, and how.

        Raises:
            PlanError: A step is a function, or has options that a cell cannot hold.
        """
        about = [text for text in (self.description, values_note(self)) if text]
        return to_cell(declared(self), name=self.name, description="\n\n".join(about))

    def to_graphviz(self) -> Digraph:
        """Return the graph for the `graphviz` package: a rank per layer, edges that only order dashed."""
        return show.digraph(self)

    def to_dot(self) -> str:
        """Return the graph as DOT, the language of Graphviz; see `to_graphviz`."""
        return show.digraph(self).source

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Read a plan from plain data. Raises `PlanError` with the position of an error.

        Args:
            data: The result of `to_dict`, or a coordinator's plan.
        """
        return plan_from_dict(data, cls)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan from JSON. Raises `PlanError` with the position of an error.

        Args:
            text: The JSON.
        """
        return plan_from_json(text, cls)

    def __repr__(self) -> str:
        return f"Plan({self.name!r}: {len(self)} agents in {self.depth} layers)"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return show.static_bundle(self)

    def _repr_svg_(self) -> str:
        """Return the picture alone, for what asks for no bundle, such as Panel."""
        return self._repr_mimebundle_()["image/svg+xml"]


def _run_of(driver: Driver | Player, session: Session, *, alone: bool) -> Run:
    history = None if alone else session.history
    return Run(driver.record, driver, history=history, prices=driver.prices, session=session)


async def plan_for(  # noqa: PLR0913 - each by its name
    goal: str,
    values: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    *,
    agents: int | None = None,
    strategy: str = "free",
    model: str | None = None,
    max_tokens: int | None = None,
    client: Provider | None = None,
    session: Session | None = None,
    fresh: bool = False,
) -> Plan:
    """Ask a coordinator for a plan. One request, two if the first answer is no plan; nothing of the plan runs.

    `plan.to_cell()` writes it for a notebook. With a session the request is in its ledger, and reused.

    Args:
        goal: The goal: a template, as prompts are.
        values: Variables of the goal. The plan's prompts may use them too.
        policy: The coordinator's policy.
        agents: Maximum agents of the plan.
        strategy: How to split the work: `free`, `file`, `feature`, `layer`, `phase` or `module`.
        model: The coordinator's model.
        max_tokens: The coordinator's `max_tokens`.
        client, session: As in `Plan.run`.
        fresh: Ask again despite an answer in the ledger.

    Raises:
        RunFailed: No plan came back.
        DeclarationError: An argument is invalid; nothing was sent.
    """
    options: Any = {"agents": agents, "strategy": strategy, "model": model, "max_tokens": max_tokens}
    asked = coordinator(goal, values or {}, Plan, **options)
    run = await asked.run(policy, client=client, session=session, fresh=fresh)
    run.raise_for_failures()
    return read_plan(run[COORDINATOR].value, Plan, run.plan.values)
