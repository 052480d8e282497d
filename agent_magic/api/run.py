"""`Run`: the results of a run, what-ifs about it, and actions on it."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from agent_magic import forecast, measure, record, show
from agent_magic.api.applying import apply_to, edit, unedit
from agent_magic.api.grading import TrialOptions, ask_judge, judge_plan, run_trial, trials_before, tried_job
from agent_magic.api.reading import Reading
from agent_magic.declare.units import plural
from agent_magic.engine.health import record_health
from agent_magic.errors import DeclarationError, PlanError
from agent_magic.machine import PYODIDE
from agent_magic.measure.scores import GradeBook, scores_frame
from agent_magic.providers.anthropic.models import MODELS
from agent_magic.record.display import Shown, bundle_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from agent_magic.api.applying import Applied
    from agent_magic.api.grading import Until
    from agent_magic.api.plan import Plan
    from agent_magic.api.session import IsApplied, Session
    from agent_magic.engine.health import Health
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.advice.finding import Finding
    from agent_magic.forecast.calibration import Forecasts
    from agent_magic.forecast.forecast import Forecaster
    from agent_magic.forecast.work import Fits
    from agent_magic.live.driver import Driver
    from agent_magic.live.playing import Player
    from agent_magic.measure.judge import Judge, Judging
    from agent_magic.measure.scores import Grader
    from agent_magic.measure.trial import Trial
    from agent_magic.record.history import History
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.prices import ModelPrice
    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.theme import Theme


@bundle_of.register
def _first_form(value: Shown) -> dict[str, str]:
    """Load how each class is shown, when the first value is."""
    return show.bundle_of(value)


class Run(Reading):
    """One execution of a plan. All its values follow from its record of events.

    Attributes:
        record: The events, and the result of each agent.
        history: Earlier answers for forecasts, if any.
        prices: Token prices of forecasts; default list prices.
        session: The provider of later requests, such as a judge's; `None` for a run read from a file.
        grades: Grades of its answers.
        trials: Results of trials with its rows, or with the same requests earlier in the session, last one last.
        advised_by: Order of its latest advice, so that a number means the displayed change.
        advised: Number of times its advice was asked for.
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
        self._fits: Fits = {}
        self.samples = [] if driver is None else driver.samples
        self.session, self.grades = session, GradeBook() if session is None else session.grades
        self.trials: list[Trial] = []
        if self.grades.trials and not record.forecast:
            self.trials += trials_before(record, self.grades, prices)
        self.advised_by, self.advised = "seconds", 0
        self.rules = () if driver is None else driver.alerts.rules

    @cached_property
    def forecasts(self) -> Forecasts:
        """Forecasts of it, for `am.calibration`."""
        return forecast.Forecasts()

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
            grader: A function that takes `(answer, row)` and returns a number or a bool, or one of them and why. An
                exception, or `NaN`, is that answer's error. Or a judge.
            policy: How a judge runs; its budget.

        Raises:
            DeclarationError: There is no such field or column, no truth fits, the function cannot be called so, or not
                exactly one of `truth` and `grader` is given.
            UnknownAgent: There is no such agent.
        """
        if isinstance(grader, measure.judge.Judge) and truth is None:
            return measure.judge.Judging(lambda: self.judge(target, grader, policy=policy), target)
        if isinstance(grader, measure.judge.Judge) or policy is not None:
            raise DeclarationError("run.score takes truth=, a function, or a judge and its policy.")
        return measure.truths.score_answers(self.record, self.grades, target, truth=truth, grader=grader)

    @property
    def scores(self) -> pd.DataFrame:
        """One row per answer and grader, from any run: score, reason, error."""
        return scores_frame(self.record, self.grades)

    def judge_plan(self, target: str, judge: Judge, *, against: Run | None = None) -> Plan:
        """Return the plan of `judge(...)`, to estimate its cost: `run.judge_plan(...).estimate()`.

        Args:
            target: The judged agent or field, as in `judge`.
            judge: The judge.
            against: The other run, as in `judge`.

        Raises:
            PlanError: There is no answer to judge.
        """
        from agent_magic.api.plan import Plan  # noqa: PLC0415  # lazy: plans make runs

        return judge_plan(Plan, self.record, target, judge, _other(against))

    async def judge(
        self,
        target: str,
        judge: Judge,
        *,
        against: Run | None = None,
        policy: Policy | None = None,
        session: Session | None = None,
    ) -> pd.DataFrame:
        """Have a model grade answers. One row per metric, as in `score`; each verdict is a row of `run.scores`.

        The judge is an agent like any other: one request per answer, in the ledger, and within the policy's budget.
        With `against` it compares two runs: each pair of answers in both orders; a verdict that changes with the order
        is a tie.

        Args:
            target: An agent or a group, and the field of a typed answer: `report`, `label.sentiment`.
            judge: `am.judge("Is every claim supported?")`.
            against: Another run of the same agents: the score is how often this run's answers are better.
            policy: The judge's policy and budget.
            session: The provider; default this run's.

        Raises:
            UnknownAgent: There is no such agent.
            PlanError: There is no answer to judge, or no provider; nothing was sent.
        """
        asked = (self.record, self.grades, target, judge, _other(against), policy, self.asking(session))
        return await ask_judge(*asked)

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
        """Ask a sample of rows under several settings, and grade the answers.

        All settings answer the same rows. `trial.frame` has a row per setting, with score, interval, verdict and
        dollars; `trial.pairs` one per pair; `trial.chosen` is accepted by `run.apply(trial)`: the cheapest of the best
        and those as good. Answers of the run or the ledger are not bought again: `trial.spent_usd` excludes them, and
        they are compared by the price of their tokens.

        `until="decided"` goes on, `n` rows at a time, until every setting is the best, as good as it, or worse; worse
        ones are not asked any more. If stopped, the grades so far are in `run.trials`.

        Args:
            target: A group of agents, and the field of a typed answer: `label.sentiment`.
            model: Models to try, a list; default as recorded.
            effort: Efforts to try, a list.
            n: Number of rows; with `until`, rows per batch.
            truth: The truth, as in `score`.
            grader: A function or a judge.
            until: `decided` stops exactly then; `None` after `n` rows.
            margin: The largest difference of scores that does not matter to you.
            error_rate: Maximum probability of a wrong verdict.
            seed: Seed of the choice of rows.
            policy: How to run; its budget covers the whole trial.
            session: The provider; default this run's.

        Raises:
            DeclarationError: An option is invalid, or there is nothing to compare.
            PlanError: The target has no rows, or there is no provider; nothing was sent.
        """
        settings = measure.trial.settings_of(model, effort)
        options = TrialOptions(target, settings, n, truth, grader, until, margin, error_rate, seed)
        found = await run_trial(self.record, self.grades, options, policy, self.asking(session), self._keep_trial)
        self.grades.trials.append((tried_job(self.record, target), found))
        return found

    def _keep_trial(self, trial: Trial) -> None:
        self.trials = [*self.trials, trial]

    async def requeue(
        self, names: str | Iterable[str] | None = None, *, policy: Policy | None = None, session: Session | None = None
    ) -> Run:
        """Retry permanent failures, with the steps skipped because of them. Successful agents keep their answers.

        Args:
            names: Names in `run.dead`; default the `transient` ones.
            policy: How to run.
            session: The provider; default this run's.

        Raises:
            PlanError: There is nothing to retry, or no provider; nothing was sent.
            UnknownAgent: A name is not in the plan; nothing was sent.
        """
        again, plan = measure.to_requeue(self.record, names), cast("Plan", self.plan)
        return await plan.run(policy, session=self.asking(session), resume=self, again=again)

    def asking(self, session: Session | None = None) -> Session:
        """Return the session that answers questions about this run.

        Args:
            session: The session; default this run's.

        Raises:
            PlanError: There is none: the run was read from a file.
        """
        found = session or self.session
        if found is None:
            raise PlanError("This run was read from a file and has no connection. Give session=am.Session().")
        return found

    def against(self, other: Run) -> Run:
        """Compare it with a run of `plan.baseline()`, or a sequential run of the same plan.

        Args:
            other: A run of the same job by one agent (`plan.baseline()`), or of the same plan one agent at a time.
        """
        measure.compare.measure_against(self.record, measure.record_of(other, "against"))
        return self

    def advise(self, by: str = "seconds", *, situation: str | None = None) -> Advice:
        """Return changes that would have been faster or cheaper, most `seconds` or `dollars` first.

        `.frame` has a row per rule with a number, `.changes` are for `run.apply`.

        Args:
            by: What counts: `seconds` or `dollars`.
            situation: The purpose, which decides what counts and is answered first: `emergency fix`, `release`,
                `large review`, `routine change`, `cost-sensitive`, `exploration`, `shared account`, `nightly job`.

        Raises:
            DeclarationError: An argument is none of these words.
        """
        by = by if situation is None else situation
        self.advised_by, self.advised = by, self.advised + 1
        outlook, totals = forecast.Outlook(self.forecaster(), self.trials), self.totals
        found = forecast.advise(outlook, totals.wall_s, totals.cost_usd, by=by)
        is_applied = None if self.session is None else self.session.is_applied
        return found if is_applied is None else found.marked(partial(self._has_change, is_applied))

    def _has_change(self, is_applied: IsApplied, change: Finding) -> bool:
        try:
            return is_applied(self.apply(change))
        except DeclarationError:  # only a person can do it
            return False

    def apply(self, what: object) -> Applied[Plan]:
        """Return the plan and the policy with a change from `run.advise()`, a what-if or a trial.

        Nothing is sent and the run is unchanged; the result shows the differences. In a notebook `%agents apply`
        changes the declarations, and `%agents undo` reverts that.

        Args:
            what: A row of `run.whatif(...)`, one of `run.advise().changes` or its number from 1 on, a trial,
                `trial.chosen`, or arguments of `run.whatif` as a mapping. A change that is no option, such as splitting
                an agent, is an error with the text to write.

        Raises:
            DeclarationError: It changes no declaration, or cannot be read.
        """
        from agent_magic.api.plan import Plan  # noqa: PLC0415  # lazy: plans make runs

        if isinstance(what, int) and not isinstance(what, bool):
            changes = self.advise(by=self.advised_by).changes
            if not 0 < what <= len(changes):
                raise DeclarationError(f"There is no change {what}: run.advise() has {plural(len(changes), 'change')}.")
            what = changes[what - 1]
        return apply_to(Plan, self.forecaster(), what, self.trials)

    def edit(self, name: str, text: Any, *, session: Session | None = None) -> list[str]:
        """Replace a model's answer with yours. Nothing is sent.

        The next run of this session uses it if the agent's request is unchanged: only its descendants are asked again.
        It is marked `edited`, `run["writer"].original` is the model's answer, and `unedit` reverts it. Without a ledger
        it counts in a run that continues this one: `plan.run(resume=run)`.

        Args:
            name: The agent, such as `writer` or `label_3`.
            text: The answer; for a typed agent a value too, which is written as JSON.
            session: The session of the next run; default this run's.

        Returns:
            The agents, tasks and groups that depend on it.

        Raises:
            UnknownAgent: There is no such agent.
            DeclarationError: It does not fit the agent's type or check, or the agent was not asked in this run.
            LedgerError: It could not be stored.
        """
        return edit(self.record, name, text, self._ledger(session))

    def unedit(self, name: str, *, session: Session | None = None) -> None:
        """Undo `edit`: the model's answer counts again. Nothing is sent.

        Args:
            name: The agent.
            session: As in `edit`.

        Raises:
            UnknownAgent: There is no such agent.
            LedgerError: It could not be stored.
        """
        unedit(self.record, name, self._ledger(session))

    def _ledger(self, session: Session | None) -> SqliteLedger | None:
        """Return the ledger of the session's next run."""
        found = session or self.session
        return None if found is None else found.ledger

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

        It opens at once and loads nothing, until the reader presses "Ask this run": then Python is loaded into the
        page, and answers other what-ifs with the engine that ran it. It is scanned for secrets first.

        Args:
            path: The file to write.
            texts: False to omit texts by people and models, except the names of agents.
            redact: Returns the replacement of a text.
            allow: Marks of findings that are not secrets.
            python: Where the page finds Pyodide: an address, by default its distribution's, or a folder beside the page
                with npm's `pyodide` in it. `None` omits the button, and the page has no script.

        Returns:
            The file.

        Raises:
            DeclarationError: `python` is no address and no folder.
            SecretFound: A probable secret was found; nothing was written.
            AgentMagicError: The run cannot be recorded, or the file cannot be written.
        """
        scenarios = None if self.record.forecast else self.whatif(**forecast.whatif.nearby(self.record, MODELS[:3]))
        return show.write_page(
            self.record,
            path,
            scenarios,
            redact=redact if texts else record.only_hash,
            allow=allow,
            python=python,
            prices=self.prices,
        )

    @property
    def barrier_cost_s(self) -> float:
        """What layer barriers cost in seconds: a forecast with them minus one without."""
        return forecast.Outlook(self.forecaster()).barrier_cost_s()

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
        **options: Any,
    ) -> pd.DataFrame:
        """Forecast the run's cost and time under changed settings: one row per combination of values. Nothing is sent.

        After a trial its measured scores are added: a score is never forecast, and `to_score` names the missing trial.
        Each argument is a value or a list of values; omitted ones are as recorded. For the columns see
        `agent_magic.forecast.whatif`.

        Args:
            model: A model, or a mapping of agents to models.
            concurrency: Maximum requests at once.
            schedule: `ready`, `shortest`, `layers`, `groups` or `sequential`.
            limits: Requests per minute, `Limits(...)`, a mapping of models to them, or `off`.
            cache: `auto`, `on` or `off`: whether shared contexts are cached.
            batch: `True` sends batches, as `Policy(batch=True)` does: half the price, an hour for each layer. `auto`
                does so as far as the deadline allows, `False` asks live.
            effort: An effort, or a mapping of agents to efforts.
            drop: An agent, or a tuple of them, to drop.
            prices: A mapping of models to `TokenPrice`, or to pairs of input and output.
            cache_ttl: `5m`, `1h` or `auto`: lifetime of a cached context.
            rounds: Maximum rounds of each loop, at most the reserved ones.
            most: Maximum items of each map over an answer, at most the reserved ones.
            route: For a run at several endpoints: `least loaded`, `round robin` or `in order`.
            outage: When the provider is unreachable, `(from_s, for_s)` in seconds of the run; for some of several
                endpoints a mapping of their names to that.
            **options: Pass-through options of agents, such as `temperature`: a value, or a mapping of agents to values.
                The error for others suggests a name.

        Raises:
            DeclarationError: An argument or value is unknown, or misspelt.
            UnknownAgent: An agent is not in the plan.
        """
        given = {
            "model": model, "concurrency": concurrency, "schedule": schedule, "limits": limits, "cache": cache,
            "batch": batch, "effort": effort, "drop": drop, "prices": prices, "cache_ttl": cache_ttl,
            "rounds": rounds, "most": most, "route": route, "outage": outage, **options,
        }  # fmt: skip
        with show.Progress("scenarios") as progress:
            frame = forecast.whatif.whatif_frame(self.forecaster(), given, tell=progress.tell, log=self.forecasts)
        return measure.trial.with_scores(frame, self.trials, self.record)

    def forecaster(self) -> Forecaster:
        """Return a forecaster for many what-ifs of this run; see `agent_magic.forecast.forecast`."""
        times_s = () if self.session is None else self.session.batch_times_s
        return forecast.Forecaster(self.record, self.history, self.prices, times_s, fits=self._fits)

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
        prices: Mapping[str, ModelPrice] | None = None,
        cache_ttl: str | None = None,
        rounds: int | None = None,
        most: int | None = None,
        route: str | None = None,
        outage: Any = None,
        **options: Any,
    ) -> Run:
        """Forecast one change of the run: a run like any other, labelled as a forecast. Nothing is sent.

        Its frames, timeline, graph and summary are forecast; `run.record.forecast` has the basis.

        Args:
            policy: The policy; `None` for the recorded one. The other arguments change it.
            model: As in `whatif`, but one value each.
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
            **options: Pass-through options, such as `temperature`, as in `whatif`.

        Raises:
            DeclarationError: An argument or value is unknown, misspelt, or a list.
            UnknownAgent: An agent is not in the plan.
        """
        given = {
            "model": model, "concurrency": concurrency, "schedule": schedule, "limits": limits, "cache": cache,
            "batch": batch, "effort": effort, "drop": drop, "prices": prices, "cache_ttl": cache_ttl,
            "rounds": rounds, "most": most, "route": route, "outage": outage, **options,
        }  # fmt: skip
        record = forecast.whatif.forecast_one(self.forecaster(), policy, given).record
        return Run(record or self.record, history=self.history, prices=self.prices, session=self.session)

    @property
    def health(self) -> Health:
        """Its health, at its end or now: limits, refusals, retries, latency, circuit breakers."""
        return self._driver.health() if self._driver is not None else record_health(self.record)

    def tradeoff(
        self, frame: pd.DataFrame | None = None, *, by: str | None = None, chosen: Any = None, theme: Theme = "auto"
    ) -> Chart:
        """Draw dollars against seconds, or against score, with the settings that no other one beats on both.

        By seconds it draws a frame of `run.whatif(...)`, with the run; by score the last `run.trial(...)`, measured
        with whiskers, and rings for the scenarios of a what-if at the models' measured scores.

        Args:
            frame: A frame of `run.whatif(...)`; by seconds, `None` forecasts one to sixteen concurrent requests and
                three models.
            by: `seconds` or `score`; default score after a trial without a frame, else seconds.
            chosen: By seconds the label of a row to mark, such as `frame["cost_usd"].idxmin()`; by score a setting,
                such as `trial.chosen`; `None` marks none.
            theme: `auto` (follows the page), `light` or `dark`.

        Raises:
            DeclarationError: `by` is neither, or there is no trial to draw by score.
        """
        if by == "seconds" or (by is None and (frame is not None or not self.trials)):
            around = forecast.whatif.nearby(self.record, MODELS[:3]) if frame is None else {}
            frame = self.whatif(**around) if frame is None else frame
            is_frame = hasattr(frame, "attrs")  # other values are refused by `run_tradeoff`
            step = show.to_take(frame, tuple(around)) if is_frame else ""
            return show.run_tradeoff(self.record, frame, chosen=chosen, step=step, theme=theme)
        show.check_by(by, self.trials)
        scored = None if frame is None else measure.trial.with_scores(frame, self.trials, self.record)
        return show.front_chart(measure.trial.last_compared(self.trials), scored, chosen=chosen, theme=theme)

    def explore(self) -> None:
        """Show a panel for what-ifs: the forecast, its timeline, the trade-off; after a trial also measured scores.

        It needs a notebook; a script uses `whatif`.
        """
        compared = measure.trial.last_compared(self.trials) if self.trials else None
        show.explore.explore(show.Explorer(self.forecaster(), compared))


def _other(run: Run | None) -> RunRecord | None:
    return None if run is None else measure.record_of(run, "judge")
