"""`Run`: a run to read, to ask what it would have cost and taken, and to act on. It calls the rooms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from agent_magic.api.pages import write_page
from agent_magic.api.reading import Reading
from agent_magic.engine.health import record_health
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.forecast.advice.advice import Advice, advise
from agent_magic.forecast.calibration import Forecasts
from agent_magic.forecast.forecast import Forecaster
from agent_magic.forecast.outlook import Outlook
from agent_magic.forecast.whatif import forecast_one, nearby, whatif_frame
from agent_magic.measure.compare import measure_against, record_of
from agent_magic.measure.dead import to_requeue
from agent_magic.measure.judge import Judge, Judging
from agent_magic.measure.scores import GradeBook, scores_frame
from agent_magic.measure.trial import last_compared, settings_of, with_scores
from agent_magic.measure.truths import score_answers
from agent_magic.providers.anthropic.models import MODELS
from agent_magic.record.cassette.writing import only_hash
from agent_magic.show.charts.front import check_by, front_chart
from agent_magic.show.charts.tradeoff import run_tradeoff
from agent_magic.show.explore import Explorer, explore
from agent_magic.show.frames import to_take
from agent_magic.show.progress import Progress
from agent_magic.show.run_page import PYODIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from agent_magic.api.applying import Applied
    from agent_magic.api.plan import Plan
    from agent_magic.api.session import Session
    from agent_magic.api.trial import Until
    from agent_magic.engine.health import Health
    from agent_magic.engine.policy import Policy
    from agent_magic.live.driver import Driver
    from agent_magic.live.playing import Player
    from agent_magic.measure.scores import Grader
    from agent_magic.measure.trial import Trial
    from agent_magic.record.history import History
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.theme import Theme


class Run(Reading):
    """One execution of a plan. Everything it says follows from its record of events.

    Attributes:
        record: The events, and what they say of each agent.
        history: Earlier answers, which forecasts stand on; `None` where there are none.
        prices: What tokens cost in forecasts; `None` is the list.
        session: Who answers what is asked about it later, such as a judge; `None` where it was read from a file.
        grades: What its answers were found to be worth.
        trials: What trials found, with its rows or earlier ones of the session that asked the same, the last one last.
        advised_by: What its advice was last asked to put first, so that a number means the change that was seen.
        advised: How often its advice was asked for.
    """

    def __init__(
        self,
        record: RunRecord,
        driver: Driver | Player | None = None,
        *,
        history: History | None = None,
        prices: Any = None,
        session: Session | None = None,
    ) -> None:
        super().__init__(record, prices)
        self._driver, self.history = driver, history
        self.samples = [] if driver is None else driver.samples
        self.session, self.grades = session, GradeBook() if session is None else session.grades
        self.forecasts = Forecasts()
        self.trials: list[Trial] = [] if record.forecast or not self.grades.trials else self._trials_before()
        self.advised_by, self.advised = "seconds", 0
        self.rules = () if driver is None else driver.alerts.rules

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the driver and the session, so that a run can be copied and pickled."""
        return {**vars(self), "_driver": None, "session": None}

    @overload
    def score(self, target: str, *, grader: Judge, policy: Policy | None = None) -> Judging: ...

    @overload
    def score(self, target: str, *, truth: Any = None, grader: Grader | None = None) -> pd.DataFrame: ...

    def score(
        self, target: str, *, truth: Any = None, grader: Grader | Judge | None = None, policy: Policy | None = None
    ) -> pd.DataFrame | Judging:
        """Grade answers: against a known truth, by a function, or by a model. One row per metric.

        `run.score("label.sentiment", truth="true_sentiment")` has the accuracy, and precision and recall per class; of
        numbers the mean absolute error; of texts how many match, exactly and normalised. `low` and `high` are a 95 %
        interval. Each grade is a row of `run.scores`. A model as judge takes its time and costs: `await run.score(
        "report", grader=am.judge("Is every claim supported?"))`, which is `run.judge(...)`.

        Args:
            target: An agent or a group, and the field of a typed answer: `report`, `label.sentiment`.
            truth: A column of the rows they are for, by name; values by the rows' keys; or the value for one agent.
            grader: A function that takes `(answer, row)` and returns a number or a bool, or one of them and why. What
                it raises, and `NaN`, is that answer's error. Or a judge.
            policy: How a judge runs; its budget.

        Raises:
            DeclarationError: There is no such field or column, no truth fits, the function cannot be called so, or not
                exactly one of `truth` and `grader` is given.
            UnknownAgent: There is no such agent.
        """
        if isinstance(grader, Judge) and truth is None:
            return Judging(lambda: self.judge(target, grader, policy=policy), target)
        if isinstance(grader, Judge) or policy is not None:
            raise DeclarationError("run.score takes truth=, a function, or a judge and its policy.")
        return score_answers(self.record, self.grades, target, truth=truth, grader=grader)

    @property
    def scores(self) -> pd.DataFrame:
        """One row per answer and grader, whatever run it was graded in: score, why, error."""
        return scores_frame(self.record, self.grades)

    def judge_plan(self, target: str, judge: Judge, *, against: Run | None = None) -> Plan:
        """Return the plan of `judge(...)`, to see what it costs: `run.judge_plan(...).estimate()`.

        Args:
            target: What is judged, as in `judge`.
            judge: The judge.
            against: The run that is compared with, as in `judge`.

        Raises:
            PlanError: There is no answer to judge.
        """
        from agent_magic.api.judging import plan_of  # noqa: PLC0415  # lazy: plans make runs

        return plan_of(self, target, judge, against)

    async def judge(
        self,
        target: str,
        judge: Judge,
        *,
        against: Run | None = None,
        policy: Policy | None = None,
        session: Session | None = None,
    ) -> pd.DataFrame:
        """Have a model grade answers. One row per metric, as `score` has them; each verdict is a row of `run.scores`.

        The judge is an agent like any other: one request for each answer, in the ledger, and on the policy's budget.
        With `against` it compares two runs: each pair of answers in both orders, and what does not hold when the order
        is swapped is a tie.

        Args:
            target: An agent or a group, and the field of a typed answer: `report`, `label.sentiment`.
            judge: `am.judge("Is every claim supported?")`.
            against: Another run of the same agents: the score is how often the answers of this run are better.
            policy: How the judge runs; its budget.
            session: Who answers; by default who answered this run.

        Raises:
            UnknownAgent: There is no such agent.
            PlanError: There is no answer to judge, or nobody to ask; nothing was sent.
        """
        from agent_magic.api.judging import ask_judge  # noqa: PLC0415  # lazy: plans make runs

        return await ask_judge(self, target, judge, against, policy, self.asking(session))

    async def trial(  # noqa: PLR0913 - each by its name
        self,
        target: str,
        *,
        model: Any = None,
        effort: Any = None,
        n: int = 20,
        truth: Any = None,
        grader: Grader | Judge | None = None,
        until: Until | None = None,
        margin: float = 0.05,
        error_rate: float = 0.05,
        seed: int = 0,
        policy: Policy | None = None,
        session: Session | None = None,
    ) -> Trial:
        """Really answer a sample of rows under several settings, and grade the answers.

        All settings answer the same rows. `trial.frame` has a row per setting, with score, interval, verdict and
        dollars; `trial.pairs` one per two of them; `trial.chosen` is what `run.apply(trial)` takes: the cheapest of the
        best and those as good. What the run or the ledger has is not bought again: `trial.spent_usd` is without it, and
        an answer of the ledger is compared by the price of its tokens.

        `until="decided"` goes on, `n` rows at a time, until every setting is the best, as good as it, or worse; what is
        worse is not asked any more. Stopped, it leaves what was graded so far in `run.trials`.

        Args:
            target: A group of agents, and the field of a typed answer: `label.sentiment`.
            model: Models to try, a list; those that are left out are as recorded.
            effort: Efforts to try, a list.
            n: How many rows; with `until`, how many at a time.
            truth: What answers are held against, as in `score`.
            grader: A function or a judge.
            until: `decided` stops no sooner and no later than that; `None` after `n` rows.
            margin: A difference of scores that is none to you.
            error_rate: How often such a trial may call settings different, or as good, that are not.
            seed: Chooses the rows.
            policy: How to run; its budget is that of the whole trial.
            session: Who answers; by default who answered this run.

        Raises:
            DeclarationError: An option is wrong, or there is nothing to compare.
            PlanError: The target has no rows, or nobody is there to ask; nothing was sent.
        """
        from agent_magic.api.trial import TrialOptions, run_trial, tried_job  # noqa: PLC0415  # lazy: plans make runs

        asked = (target, settings_of(model, effort), n, truth, grader, until, margin, error_rate, seed)
        found = await run_trial(self, TrialOptions(*asked), policy, self.asking(session))
        self.trials = [*self.trials, found]
        self.grades.trials.append((tried_job(self, target), found))
        return found

    def _trials_before(self) -> list[Trial]:
        """Return the trials of its session that asked the same."""
        from agent_magic.api.trial import trials_before  # noqa: PLC0415  # lazy: plans make runs

        return trials_before(self)

    async def requeue(
        self, names: str | Iterable[str] | None = None, *, policy: Policy | None = None, session: Session | None = None
    ) -> Run:
        """Run again what failed for good, with what was skipped because of it. What succeeded keeps its answer.

        Args:
            names: Rows of `run.dead`, by name; by default those where asking again can help (`transient`).
            policy: How to run.
            session: Who answers; by default who answered this run.

        Raises:
            PlanError: There is nothing to ask again, or nobody to ask; nothing was sent.
            UnknownAgent: A name is not in the plan; nothing was sent.
        """
        again, plan = to_requeue(self.record, names), cast("Plan", self.plan)
        return await plan.run(policy, session=self.asking(session), resume=self, again=again)

    def asking(self, session: Session | None = None) -> Session:
        """Return who answers questions about this run.

        Args:
            session: Who shall; by default who answered it.

        Raises:
            PlanError: Nobody: it was read from a file.
        """
        found = session or self.session
        if found is None:
            raise PlanError("Nobody is there to ask: this run was read from a file. Give session=am.Session().")
        return found

    def against(self, other: Run) -> Run:
        """Compare it with a run of `plan.baseline()`, or a sequential run of the same plan.

        Args:
            other: A run of the same job by one agent (`plan.baseline()`), or of the same plan one agent at a time.
        """
        measure_against(self.record, record_of(other, "against"))
        return self

    def advise(self, by: str = "seconds") -> Advice:
        """Return what would have made it faster or cheaper, most `seconds` or `dollars` first.

        `.frame` has a row per rule that had a number, `.changes` what `run.apply` takes.

        Args:
            by: What counts: `seconds` or `dollars`.
        """
        self.advised_by, self.advised = by, self.advised + 1
        return advise(Outlook(self.forecaster(), self.trials), self.totals.wall_s, self.totals.cost_usd, by=by)

    def apply(self, what: object) -> Applied:
        """Return the plan and the policy with a change: what `run.advise()`, a what-if or a trial came to.

        Nothing is sent and the run stays as it is; the result shows what differs. In a notebook `%agents apply` changes
        what is declared, and `%agents undo` takes that back.

        Args:
            what: A row of `run.whatif(...)`, one of `run.advise().changes` or its number from 1 on, a trial,
                `trial.chosen`, or arguments of `run.whatif` as a mapping. A change that is no option, such as to split
                an agent, is an error that says what to write.

        Raises:
            DeclarationError: It changes nothing that is declared, or cannot be read.
        """
        from agent_magic.api.applying import apply_to  # noqa: PLC0415  # lazy: plans make runs

        return apply_to(self, what)

    def to_page(
        self,
        path: str | Path,
        *,
        texts: bool = True,
        redact: Callable[[str], str] | None = None,
        allow: Iterable[str] = (),
        python: str | None = PYODIDE,
    ) -> Path:
        """Write the run as one HTML file that opens in any browser: pictures, numbers, answers, what-ifs, recording.

        It is there at once and loads nothing, until somebody presses "Ask this run": then Python is loaded into the
        page, and answers other what-ifs with the engine that ran it. It is scanned for keys first.

        Args:
            path: The file to write.
            texts: Whether what people and models wrote is in it, but for the names of agents.
            redact: Returns what is written in place of a text.
            allow: Marks of findings that are not keys.
            python: Where the page finds Pyodide: an address, by default that of its distribution, or a folder beside
                the page with npm's `pyodide` in it. `None` leaves the button out, and the page has no script.

        Returns:
            The file.

        Raises:
            DeclarationError: `python` is no address and no folder.
            SecretFound: Something looks like a key; nothing was written.
            AgentMagicError: The run cannot be recorded, or the file cannot be written.
        """
        scenarios = None if self.record.forecast else self.whatif(**nearby(self.record, MODELS[:3]))
        return write_page(
            self.record,
            path,
            scenarios,
            redact=redact if texts else only_hash,
            allow=allow,
            python=python,
            prices=self.prices,
        )

    @property
    def barrier_cost_s(self) -> float:
        """What layer barriers cost in seconds: a forecast with them minus one without."""
        return Outlook(self.forecaster()).barrier_cost_s()

    def whatif(  # noqa: PLR0913 - fourteen things can change, and each has its name
        self,
        *,
        model: Any = None,
        concurrency: Any = None,
        schedule: Any = None,
        limits: Any = None,
        cache: Any = None,
        batch: Any = None,
        effort: Any = None,
        drop: Any = None,
        prices: Any = None,
        cache_ttl: Any = None,
        rounds: Any = None,
        most: Any = None,
        route: Any = None,
        outage: Any = None,
        **misspelt: Any,
    ) -> pd.DataFrame:
        """Return what the run would have cost and taken: one row per combination of values. Nothing is sent.

        After a trial its measured scores stand beside: a score is never forecast, and `to_score` says what would tell.
        Each argument is a value or a list of values; what is left out stays as it was. For the columns see
        `agent_magic.forecast.whatif`.

        Args:
            model: A model, or a mapping of agents to models.
            concurrency: The most requests under way at once.
            schedule: `ready`, `layers` or `sequential`.
            limits: Requests per minute, `Limits(...)`, a mapping of models to them, or `off`.
            cache: `auto`, `on` or `off`: whether shared contexts are cached.
            batch: `True` sends it by batch, as `Policy(batch=True)` does: half the price, an hour for each layer.
                `auto` does so as far as the deadline allows, `False` asks live.
            effort: An effort, or a mapping of agents to efforts.
            drop: An agent, or a tuple of them, that is left out.
            prices: A mapping of models to `TokenPrice`.
            cache_ttl: `5m`, `1h` or `auto`: how long a cached context lives.
            rounds: The most rounds of each loop, no more than are reserved.
            most: The most items of each map over an answer, no more than are reserved.
            route: Of a run at several endpoints: `least loaded`, `round robin` or `in order`.
            outage: When the provider cannot be reached, `(from_s, for_s)` in seconds of the run; for some of several
                endpoints a mapping of their names to that.
            **misspelt: None: the error names what was meant.

        Raises:
            DeclarationError: An argument or a value is not known, or misspelt.
            UnknownAgent: An agent is not in the plan.
        """
        given = {
            "model": model, "concurrency": concurrency, "schedule": schedule, "limits": limits, "cache": cache,
            "batch": batch, "effort": effort, "drop": drop, "prices": prices, "cache_ttl": cache_ttl,
            "rounds": rounds, "most": most, "route": route, "outage": outage, **misspelt,
        }  # fmt: skip
        with Progress("scenarios") as progress:
            frame = whatif_frame(self.forecaster(), given, tell=progress.tell, log=self.forecasts)
        return with_scores(frame, self.trials, self.record)

    def forecaster(self) -> Forecaster:
        """Return a forecaster for many what-ifs of this run; see `agent_magic.forecast.forecast`."""
        times_s = () if self.session is None else self.session.batch_times_s
        return Forecaster(self.record, self.history, self.prices, times_s)

    def forecast(  # noqa: PLR0913 - as in `whatif`
        self,
        policy: Policy | None = None,
        *,
        model: Any = None,
        concurrency: int | None = None,
        schedule: str | None = None,
        limits: Any = None,
        cache: str | bool | None = None,
        batch: bool | str | None = None,
        effort: Any = None,
        drop: Any = None,
        prices: Mapping[str, TokenPrice] | None = None,
        cache_ttl: str | None = None,
        rounds: int | None = None,
        most: int | None = None,
        route: str | None = None,
        outage: Any = None,
        **misspelt: Any,
    ) -> Run:
        """Forecast one change of the run: a run like any other, labelled as a forecast. Nothing is sent.

        Its frames, timeline, graph and summary are those of the run as it would have been; `run.record.forecast` says
        what they stand on.

        Args:
            policy: How to run; `None` is as it was recorded. The other arguments come on top.
            model: As in `whatif`, and so on: one value each.
            concurrency: See `whatif`.
            schedule: See `whatif`.
            limits: See `whatif`.
            cache: See `whatif`.
            batch: See `whatif`.
            effort: See `whatif`.
            drop: See `whatif`.
            prices: See `whatif`.
            cache_ttl: See `whatif`.
            rounds: See `whatif`.
            most: See `whatif`.
            route: See `whatif`.
            outage: See `whatif`.
            **misspelt: None: the error names what was meant.

        Raises:
            DeclarationError: An argument or a value is not known, misspelt, or several.
            UnknownAgent: An agent is not in the plan.
        """
        given = {
            "model": model, "concurrency": concurrency, "schedule": schedule, "limits": limits, "cache": cache,
            "batch": batch, "effort": effort, "drop": drop, "prices": prices, "cache_ttl": cache_ttl,
            "rounds": rounds, "most": most, "route": route, "outage": outage, **misspelt,
        }  # fmt: skip
        record = forecast_one(self.forecaster(), policy, given).record
        return Run(record or self.record, history=self.history, prices=self.prices, session=self.session)

    @property
    def health(self) -> Health:
        """Its health, at its end or now: limits, refusals, retries, latency, circuit breakers."""
        return self._driver.health() if self._driver is not None else record_health(self.record)

    def tradeoff(
        self, frame: pd.DataFrame | None = None, *, by: str | None = None, chosen: Any = None, theme: Theme = "auto"
    ) -> Chart:
        """Draw dollars against seconds, or against score, with the settings that no other one beats on both.

        By seconds it draws what `run.whatif(...)` returned, with the run; by score the last `run.trial(...)`, measured
        with whiskers, and rings for the scenarios of a what-if at the models' measured scores.

        Args:
            frame: What `run.whatif(...)` returned; by seconds `None` asks for one to sixteen concurrent requests and
                three models.
            by: `seconds` or `score`; by default score where a trial was made and no frame is given, else seconds.
            chosen: By seconds the label of a row to mark, such as `frame["cost_usd"].idxmin()`; by score a setting,
                such as `trial.chosen`; `None` marks none.
            theme: How it is coloured: `auto` follows the page, or `light`, `dark`.

        Raises:
            DeclarationError: `by` is neither, or there is no trial to draw by score.
        """
        if by == "seconds" or (by is None and (frame is not None or not self.trials)):
            around = nearby(self.record, MODELS[:3]) if frame is None else {}
            frame = self.whatif(**around) if frame is None else frame
            step = to_take(frame, tuple(around)) if hasattr(frame, "attrs") else ""  # what is no frame is refused there
            return run_tradeoff(self.record, frame, chosen=chosen, step=step, theme=theme)
        check_by(by, self.trials)
        scored = None if frame is None else with_scores(frame, self.trials, self.record)
        return front_chart(last_compared(self.trials), scored, chosen=chosen, theme=theme)

    def explore(self) -> None:
        """Show a panel for what-ifs: the forecast, its timeline, the trade-off; after a trial also measured scores."""
        explore(Explorer(self.forecaster(), last_compared(self.trials) if self.trials else None))
