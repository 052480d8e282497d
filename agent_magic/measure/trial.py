"""A trial: a sample of rows, answered under several settings and graded, to separate differences from noise.

All settings answer the same rows, and the scores of a row are compared: a hard row is hard for both. A setting is
`worse` if its difference from any other is certainly below 0, `as good` if its difference from the best is certainly
within the margin, and `undecided` otherwise.

Certain means: at most `error_rate` of such trials err in any comparison, at any look, by a confidence sequence at
`error_rate / comparisons` each (Bonferroni). So a trial may stop once decided, and worse settings are dropped early.
Scores outside 0 to 1 have no such sequence: they are compared by Student's t at the end, once.

Source: `agent_magic.measure.intervals`; dropping is successive elimination, Even-Dar et al., "Action Elimination and
Stopping Conditions", JMLR 7, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from agent_magic.declare.units import dollars, plural
from agent_magic.errors import DeclarationError
from agent_magic.measure.frames import DTYPES, as_made, make_frame
from agent_magic.measure.intervals import Interval, mean_interval, more_needed, running_interval
from agent_magic.measure.scores import answers_of, reading, summary_of, why_not
from agent_magic.record.display import Shown

if TYPE_CHECKING:
    import pandas as pd

    from agent_magic.measure.scores import Grade
    from agent_magic.record.results import RunRecord

Verdict = Literal["best", "as good", "worse", "undecided", "unknown"]
Stopped = Literal["decided", "sample", "rows", "budget", "stopped"]
TRIAL: Final[Mapping[str, str]] = {
    "model": "string",
    "effort": "string",
    "n": "Int64",
    "score": "Float64",
    "low": "Float64",
    "high": "Float64",
    "verdict": "string",
    "cost_usd": "Float64",
    "total_s": "Float64",
    "run_usd": "Float64",
    "run_low_usd": "Float64",
    "run_high_usd": "Float64",
    "more": "Int64",
    "errors": "Int64",
}
"""`cost_usd` and `total_s` are means per answer, `run_usd` is a whole run at that rate."""
PAIRS: Final[Mapping[str, str]] = {
    "setting": "string",
    "other": "string",
    **{name: DTYPES[name] for name in ("n",)},
    "difference": "Float64",
    "low": "Float64",
    "high": "Float64",
    "more": "Int64",
}


class Setting(NamedTuple):
    """A setting of a trial; `None` is as recorded."""

    model: str | None
    effort: str | None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> Setting:
        """Return the setting that a row of a frame names."""
        return cls(*(value if isinstance(value := row.get(name), str) else None for name in cls._fields))

    @property
    def label(self) -> str:
        """The setting in a few words."""
        return " · ".join(filter(None, [(self.model or "").replace("claude-", ""), self.effort])) or "as it was"


class Tried(NamedTuple):
    """One answer of a trial.

    Attributes:
        cost_usd: Dollars of its request, even if reused; `None` if counted in an equal row.
        work_s: Seconds of its work, without waiting.
        by_tokens: True if the dollars are computed from its tokens.
    """

    agent: str
    grade: Grade
    cost_usd: float | None
    work_s: float | None
    by_tokens: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Trial(Shown):
    """The result of a trial. `trial.frame` has a row per setting, `trial.pairs` one per pair.

    Attributes:
        target: The graded agent or field.
        settings: The settings.
        tried: The answers of each setting, in order of arrival.
        rows: Number of rows of the run.
        asked: Number of rows with a request; equal rows share one. None: all.
        gradable: Number of rows that can be graded; None: all.
        by_truth: True if answers are compared with a truth, so that a row needs a label.
        others_usd: Cost of the other agents of the run; `None` if unknown.
        margin: The largest difference that counts as none.
        error_rate: Maximum probability that the trial errs.
        sequential: True if it stops once decided.
        stopped: Why it ended.
        spent_usd: Its cost with graders, without reused answers; `None` if unknown.
    """

    target: str
    settings: tuple[Setting, ...]
    tried: tuple[tuple[Tried, ...], ...]
    rows: int = field(kw_only=True)
    asked: int | None = field(default=None, kw_only=True)
    gradable: int | None = field(default=None, kw_only=True)
    by_truth: bool = field(default=False, kw_only=True)
    others_usd: float | None = field(default=0.0, kw_only=True)
    margin: float = field(kw_only=True)
    error_rate: float = field(kw_only=True)
    sequential: bool = field(default=False, kw_only=True)
    stopped: Stopped = field(default="sample", kw_only=True)
    spent_usd: float | None = field(default=None, kw_only=True)
    simulated: bool = field(default=False, kw_only=True)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per setting, the most expensive last.

        Columns: `model` and `effort`, `NA` as recorded; `n` answers graded; `score` with `low` and `high`; `verdict`;
        `cost_usd` and `total_s`, means per answer; `run_usd`, `run_low_usd` and `run_high_usd`, the whole run at that
        rate; `more`, about how many more answers would decide, at most the rows left; `errors`, answers without a
        grade. A reused answer costs what its tokens do. Unknown is `NA`.
        """
        verdicts, pairs = self.verdicts(), self._pairs()
        best = self._best()
        rows: list[dict[str, Any]] = []
        for index, (setting, tried) in enumerate(zip(self.settings, self.tried, strict=True)):
            found, cost = self._score(tried), mean_interval(_known(tried, "cost_usd"))
            to_best = pairs.get((min(index, best), max(index, best))) if best is not None else None
            undecided = verdicts[index] == "undecided" and to_best is not None
            rows.append(
                {
                    **setting._asdict(),
                    "n": found.n,
                    "errors": len(tried) - found.n,
                    "score": _or_none(found.value),
                    "low": _or_none(found.low),
                    "high": _or_none(found.high),
                    "verdict": verdicts[index],
                    "cost_usd": _or_none(cost.value),
                    "total_s": _or_none(mean_interval(_known(tried, "work_s")).value),
                    **dict(zip(("run_usd", "run_low_usd", "run_high_usd"), map(self._of_run, cost[:3]), strict=True)),
                    "more": self._more(to_best)[0] if undecided and to_best is not None else None,
                }
            )
        rows.sort(key=lambda row: math.inf if row["cost_usd"] is None else row["cost_usd"])
        return make_frame(rows, TRIAL, target=self.target, simulated=self.simulated, stopped=self.stopped)

    @property
    def pairs(self) -> pd.DataFrame:
        """One row per two settings: the mean difference of their scores on the same rows, with its interval.

        Columns: `setting` and `other`; `n` rows that both have answered; `difference`, of the first, with `low` and
        `high`; `more`, about how many more answers would decide, at most the rows left; `NA` if it is decided.
        """
        rows = [
            {
                "setting": self.settings[one].label,
                "other": self.settings[other].label,
                "n": found.n,
                "difference": _or_none(found.value),
                "low": _or_none(found.low),
                "high": _or_none(found.high),
                "more": None if self._is_decided(found) else self._more(found)[0] or None,
            }
            for (one, other), found in self._pairs().items()
        ]
        return make_frame(rows, PAIRS, target=self.target, simulated=self.simulated)

    def more_words(self, index: int) -> str:
        best = self._best()
        if best is None or self.verdicts()[index] != "undecided":
            return ""
        more, enough = self._more(self._pairs()[min(index, best), max(index, best)])
        if enough:
            return f"about {plural(more, 'more answer')} would decide" if more else ""
        return f"the {plural(more, 'row')} left {'is' if more == 1 else 'are'} too few to decide" if more else NO_ROWS

    def _more(self, found: Interval) -> tuple[int, bool]:
        needed, left = more_needed(found, self.margin), self._left(found.n)
        return min(needed, left), needed <= left

    def _left(self, graded: int) -> int:
        return max(0, (self.rows if self.gradable is None else self.gradable) - graded)

    def _to_decide(self) -> str:
        best, pairs = self._best(), self._pairs()
        if best is None:
            return ""
        open_ = [place for place, one in enumerate(self.verdicts()) if one == "undecided"]
        found = [pairs[min(place, best), max(place, best)] for place in open_]
        needed = max((more_needed(one, self.margin) for one in found), default=0)
        left = self._left(max((one.n for one in found), default=0))
        labelled = "labelled " if self.by_truth else ""
        return f" About {plural(needed, f'more {labelled}row')} would decide, {left:,} are left." if needed else ""

    def score_of(self, setting: Setting) -> Interval:
        """Return the score of a setting, with its interval.

        Args:
            setting: One of `settings`.
        """
        return self._score(self.tried[self.settings.index(setting)])

    def _score(self, tried: Sequence[Tried]) -> Interval:
        if self.sequential:
            return running_interval(list(_scores(tried).values()), 0, 1, self.error_rate)
        return summary_of([one.grade for one in tried])

    @property
    def bounded(self) -> bool:
        """True if all scores are from 0 to 1, so that it may stop once decided."""
        return all(0 <= score <= 1 for tried in self.tried for score in _scores(tried).values())

    def verdicts(self) -> list[Verdict]:
        pairs, best = self._pairs(), self._best()
        found: list[Verdict] = []
        for index in range(len(self.settings)):
            if not _scores(self.tried[index]):
                found.append("unknown")
            elif index == best:
                found.append("best")
            elif any(apart.high < 0 for apart in self._from(index, pairs)):
                found.append("worse")
            else:
                apart = next(self._from(index, {key: one for key, one in pairs.items() if best in key}))
                as_good = -self.margin <= apart.low and apart.high <= self.margin
                found.append("as good" if as_good else "undecided")
        return found

    def racing(self) -> list[int]:
        return [index for index, one in enumerate(self.verdicts()) if one != "worse"]

    @property
    def decided(self) -> bool:
        """True if every setting is the best, as good as it, or worse."""
        return not {"undecided", "unknown"} & {*self.verdicts()}

    @property
    def chosen(self) -> Setting | None:
        """The cheapest of the best setting and those as good; `None` with fewer than two graded ones."""
        verdicts = self.verdicts()
        if len(verdicts) - verdicts.count("unknown") < FEWEST:
            return None
        good = [index for index, one in enumerate(verdicts) if one in ("best", "as good")]
        return self.settings[min(good, key=self._dearness)]

    def _dearness(self, index: int) -> tuple[bool, float]:
        cost = mean_interval(_known(self.tried[index], "cost_usd")).value
        return (math.isnan(cost), cost)

    def best(self, under_usd: float) -> Setting | None:
        """Return the best-scoring setting with a whole run of at most `under_usd`, or `None`.

        Args:
            under_usd: Dollars of the whole run.
        """
        known = self.frame.dropna(subset=["score", "run_usd"])
        fitting = known[known["run_usd"] <= under_usd]
        return _first(fitting.sort_values(["score", "run_usd"], ascending=[False, True]))

    def cheapest(self, score: float) -> Setting | None:
        """Return the cheapest setting with at least this score, or `None`.

        Args:
            score: The least score, as measured.
        """
        known = self.frame.dropna(subset=["score", "cost_usd"])
        fitting = known[known["score"] >= score]
        return _first(fitting.sort_values("cost_usd"))

    def _best(self) -> int | None:
        means = {place: mean_interval(list(_scores(one).values())).value for place, one in enumerate(self.tried)}
        graded = [place for place, mean in means.items() if not math.isnan(mean)]
        most = max((len(_scores(self.tried[place])) for place in graded), default=0)
        full = [place for place in graded if len(_scores(self.tried[place])) == most]  # others are out of the race
        most = max((means[place] for place in full), default=math.nan)
        equal = [place for place in full if means[place] == most]
        return min(equal, key=self._dearness) if equal else None  # of equal scores the cheapest

    def _pairs(self) -> dict[tuple[int, int], Interval]:
        count = len(self.settings)
        rate = self.error_rate / max(1, count * (count - 1) // 2)
        scores = [_scores(one) for one in self.tried]
        found: dict[tuple[int, int], Interval] = {}
        for one, other in combinations(range(count), 2):
            apart = [score - scores[other][name] for name, score in scores[one].items() if name in scores[other]]
            running = self.bounded
            found[one, other] = running_interval(apart, -1, 1, rate) if running else mean_interval(apart, 1 - rate)
        return found

    @staticmethod
    def _from(index: int, pairs: Mapping[tuple[int, int], Interval]) -> Iterator[Interval]:
        for (one, other), found in pairs.items():
            if index == one:
                yield found
            elif index == other:
                yield Interval(-found.value, -found.high, -found.low, found.n)

    def _is_decided(self, found: Interval) -> bool:
        return found.low > 0 or found.high < 0 or (-self.margin <= found.low and found.high <= self.margin)

    def _of_run(self, cost: float) -> float | None:
        if math.isnan(cost) or self.others_usd is None:
            return None
        return max(0.0, cost) * (self.rows if self.asked is None else self.asked) + self.others_usd

    def __repr__(self) -> str:
        return f"Trial({self.target!r}: {self.headline()})\n{self.frame.to_string(index=False)}"

    def headline(self) -> str:
        verdicts, chosen = self.verdicts(), self.chosen
        names = {
            kind: [s.label for s, v in zip(self.settings, verdicts, strict=True) if v == kind] for kind in verdicts
        }
        ended = {"budget": "the budget is used up", "rows": "no rows are left", "stopped": "stopped"}.get(self.stopped)
        graded = sum(len(_scores(one)) for one in self.tried)
        about = f"({f'{ended}, ' if ended else ''}{graded:,} answers graded)"
        if chosen is None:
            only = f"only {names['best'][0]} was graded, so nothing is compared" if graded else "no answer was graded"
            return f"{only} {about}" if graded else f"{only}{f': {ended}' if ended else ''}"
        best = self.settings[self._best() or 0]
        first = f"{best.label} is best" if self.decided else f"not decided: {best.label} scores best"
        parts = [f"{first}, {reading(self.score_of(best))}"]
        parts += [f"{', '.join(names[kind])} {words}" for kind, words in SAID.items() if kind in names]
        apply = f"Apply: {chosen.label}" if self.decided else f"To decide now: {chosen.label}"
        cost = mean_interval(_known(self.tried[self.settings.index(chosen)], "cost_usd")).value
        run_usd = self._of_run(cost)
        apply += "" if run_usd is None else f", {dollars(run_usd)} a run"
        return f"{'; '.join(parts)} {about}.{self._to_decide()} {apply}"

    def why_unknown(self, index: int) -> str:
        return why_not([one.grade for one in self.tried[index]])


NO_ROWS: Final = "no rows are left to decide"
SAID: Final[Mapping[Verdict, str]] = {
    "as good": "as good",
    "worse": "worse",
    "undecided": "within noise",
    "unknown": "not graded",
}


def settings_of(model: Any, effort: Any) -> tuple[Setting, ...]:
    found = tuple(dict.fromkeys(Setting(one, other) for one in _listed(model) for other in _listed(effort)))
    if len(found) < 2:
        raise DeclarationError("A trial compares settings.", hint="Give two models or efforts at least: model=[...].")
    return found


def last_compared(trials: Sequence[Trial]) -> Trial:
    """Return the last trial that compared settings, else the last one: a budget may have ended it early."""
    return next((one for one in reversed(trials) if one.chosen is not None), trials[-1])


def with_scores(frame: pd.DataFrame, trials: Sequence[Trial], record: RunRecord) -> pd.DataFrame:
    """Add the scores of the last trial to scenarios, unless they have them: scores are never forecast."""
    if not trials or "score" in frame.columns:
        return frame
    trial = last_compared(trials)
    models = {one.result.model for one in answers_of(record, trial.target)}
    unchanged = models.pop() if len(models) == 1 else ""
    measured = [(Setting.of(one), one) for one in trial.frame.astype(object).to_dict("records")]
    rows: list[dict[str, Any]] = []
    for row in frame.astype(object).to_dict("records"):
        asked = Setting.of(row)
        keys = [(asked.model or unchanged, asked.effort)]
        keys += [("", asked.effort)] if asked.model in (None, unchanged) else []
        of, found = next((one for one in measured if (one[0].model or "", one[0].effort) in keys), (None, None))
        cost = row["cost_usd"]
        about = f", about ${float(cost) * SAMPLE / trial.rows:.2g}" if isinstance(cost, float) else ""
        setting = ", ".join(f"{name}=[{value!r}]" for name, value in asked._asdict().items() if value)
        missing = f"grade {SAMPLE} answers{about}: await run.trial({trial.target!r}, {setting or 'model=[...]'}, ...)"
        numbers = {f"score_{name}": found[name] for name in ("low", "high")} if found else {}
        score = {"score": found["score"]} if found else {}
        rows.append({**score, **numbers, "score_of": of and of.label, "to_score": None if found else missing})
    scores = make_frame(rows, {**dict.fromkeys(SCORED, "Float64"), "score_of": "string", "to_score": "string"})
    joined = frame.assign(**{name: scores[name].set_axis(frame.index) for name in scores.columns})
    joined.attrs.update(frame.attrs)
    return as_made(joined)


FEWEST: Final = 2
"""Graded settings that a comparison needs."""
SAMPLE: Final = 20
"""Answers to grade, as a suggestion."""
SCORED: Final = ("score", "score_low", "score_high")


def _listed(given: Any) -> list[Any]:
    return [*cast("Sequence[Any]", given)] if isinstance(given, list | tuple) else [given]


def _scores(tried: Sequence[Tried]) -> dict[str, float]:
    known = [(one.agent, one.grade) for one in tried if one.grade.score is not None]
    return {
        name: -grade.score if grade.measure == "error" else grade.score
        for name, grade in known
        if grade.score is not None
    }


def _known(tried: Sequence[Tried], name: str) -> list[float]:
    return [value for one in tried if (value := getattr(one, name)) is not None]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _first(frame: pd.DataFrame) -> Setting | None:
    return next((Setting.of(one) for one in frame.to_dict("records")), None)
