"""A trial's result as advice: a setting graded at least as good as the run's own, and no dearer.

Scores come from graders only. Other rules ask `verdict_on` before they call quality unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.forecast.advice.finding import SCALING, WORTH, Finding, found
from agent_magic.measure.scores import FEW, reading

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agent_magic.forecast.advice.finding import Outlook
    from agent_magic.measure.trial import Setting, Trial, Verdict

RULE: Final = "the setting by its grades"
SAYS: Final[dict[Verdict, str]] = {
    "best": "the best of the trial",
    "as good": "as good",
    "worse": "worse",
    "undecided": "within noise",
    "unknown": "not graded",
}


class Graded(NamedTuple):
    """A trial's result for a setting of its agents."""

    trial: Trial
    place: int
    names: tuple[str, ...]

    @property
    def setting(self) -> Setting:
        return self.trial.settings[self.place]

    @property
    def verdict(self) -> Verdict:
        return self.trial.verdicts()[self.place]

    @property
    def words(self) -> str:
        score = self.trial.score_of(self.setting)
        if not score.n:
            return f"{self.setting.label} was not graded"
        return f"{self.setting.label} scores {reading(score)}" + (f" (n {score.n})" if score.n >= FEW else "")


def latest(outlook: Outlook) -> Iterator[tuple[Trial, tuple[str, ...]]]:
    plan = outlook.record.plan
    for trial in {one.target: one for one in outlook.trials if one.chosen is not None}.values():
        name = trial.target.partition(".")[0]
        if name in plan.groups or name in plan.index:
            yield trial, tuple(plan.names[number] for number in plan.numbers([name]))


def of_setting(
    outlook: Outlook, trial: Trial, names: tuple[str, ...], model: str | None, effort: str | None
) -> int | None:
    own_model, own_effort = _recorded(outlook, names)
    wanted = model or own_model, effort or own_effort
    for place, one in enumerate(trial.settings):
        if (one.model or own_model, one.effort or own_effort) == wanted:
            return place
    return None


def _recorded(outlook: Outlook, names: tuple[str, ...]) -> tuple[str | None, str | None]:
    seen = [outlook.seen[outlook.record.plan.number(name)] for name in names]
    models, efforts = {one.model for one in seen if one.model}, {one.effort for one in seen}
    return models.pop() if len(models) == 1 else None, efforts.pop() if len(efforts) == 1 else None


def verdict_on(
    outlook: Outlook, numbers: Collection[int], *, model: str | None = None, effort: str | None = None
) -> Graded | None:
    asked = {outlook.record.plan.names[one] for one in numbers}
    for trial, names in latest(outlook):
        place = of_setting(outlook, trial, names, model, effort) if asked.issubset(names) else None
        if place is not None:
            return Graded(trial, place, names)
    return None


def how_sure(graded: Graded) -> str:
    said = graded.words if graded.verdict == "unknown" else f"{graded.words}, {SAYS[graded.verdict]}"
    more = graded.trial.more_words(graded.place)
    return f"{said}: {more}" if more else said


def by_grades(outlook: Outlook) -> Finding | None:
    """A setting that a trial found at least as good as the run's own, and no dearer."""
    for trial, names in latest(outlook):
        own, chosen = of_setting(outlook, trial, names, None, None), trial.chosen
        if own is None or chosen is None:
            continue
        place, verdicts = trial.settings.index(chosen), trial.verdicts()
        here, there = Graded(trial, own, names), Graded(trial, place, names)
        label = trial.target
        if place == own:
            others = "; ".join(how_sure(Graded(trial, at, names)) for at in range(len(verdicts)) if at != own)
            return found(outlook, RULE, f"{label}: {here.words}, as in this run. Tried beside it: {others}.", SCALING)
        return _other(outlook, here, there)
    return None


def _other(outlook: Outlook, here: Graded, there: Graded) -> Finding:
    setting, names = there.setting, there.names
    apply = {option: dict.fromkeys(names, value) for option, value in setting._asdict().items() if value is not None}
    numbers = outlook.record.plan.numbers(names)
    models = dict.fromkeys(numbers, setting.model) if setting.model else {}
    efforts = dict.fromkeys(numbers, setting.effort) if setting.effort else {}
    changed = outlook.ask(models=models, efforts=efforts)
    spent, total = outlook.saves_usd(changed), outlook.as_it_was.cost_usd
    dearer = spent is None or total is None or spent < -WORTH * total
    apart = f"{here.words}, {SAYS[here.verdict]}; {there.words}, {SAYS[there.verdict]}"
    kind = "simulated trial" if there.trial.simulated else "trial"
    margin = f"to differ by less than {there.trial.margin:g} is as good"
    measured = f"A {kind} graded {there.trial.target}: {apart}; {margin}."
    name = there.trial.target.partition(".")[0]
    if dearer:
        better = "graded better, and is dearer" if here.verdict == "worse" else "the best of the trial, and is dearer"
        return found(outlook, RULE, f"{measured} {setting.label} is {better}: run.apply(trial) takes it.", SCALING)
    change = f"Take {setting.label} for {name}: {WORTHY[here.verdict]}."
    told = found(outlook, RULE, measured, SCALING, changed, change, **apply)
    flags = " ".join(f"--{option} {value}" for option, value in setting._asdict().items() if value is not None)
    return told.at(name, flags)


WORTHY: Final[dict[Verdict, str]] = {
    "worse": "it was graded better, and is no dearer",
    "undecided": "it scores best and is no dearer, though the difference is within noise",
    "as good": "it was graded as good, and costs less",
    "best": "it was graded as good, and costs less",
    "unknown": "it was graded, and what the run had was not",
}
