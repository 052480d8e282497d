"""Rules on needless tokens: repeated text, unused room, effort, and cache lifetimes; and graded trials.

Scores come from graders only. Other rules ask `verdict_on` before they call quality unknown.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.declare.content import Attachment
from agent_magic.declare.declared import without_value
from agent_magic.declare.options import EFFORTS
from agent_magic.declare.units import dollars, plural, seconds
from agent_magic.declare.values import RenderError, holds_content, value_text
from agent_magic.engine.admission.prefix import LIFE_S, context_tokens
from agent_magic.errors import some_of
from agent_magic.forecast.advice.finding import (
    BRACES,
    LEAST_PREFIX,
    SCALING,
    TOKENS,
    WORTH,
    Finding,
    cheapens,
    found,
    pays,
)
from agent_magic.forecast.evidence import facts_of
from agent_magic.forecast.work import Rewritten
from agent_magic.measure.scores import FEW, reading
from agent_magic.measure.trial import SAID
from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.forecast.advice.finding import Outlook
    from agent_magic.forecast.evidence import Seen
    from agent_magic.forecast.forecast import Forecast
    from agent_magic.measure.trial import Setting, Trial, Verdict


RULE: Final = "the setting by its grades"
SAYS: Final[Mapping[Verdict, str]] = {"best": "the best of the trial", **SAID}


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
    for index, one in enumerate(trial.settings):
        if (one.model or own_model, one.effort or own_effort) == wanted:
            return index
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


CACHING = "the vendor's page on prompt caching"
HEADROOM, ROUNDED = 2, 100
"""A proposed `max_tokens` is this multiple of the longest answer, rounded up, since the next may be longer."""
LEAST_THOUGHT, MOSTLY = 500, 0.5
"""Minimum hidden output tokens, and share of all output, to be named."""
LEAST_LINE, LEAST_PARAGRAPH = 40, 200
"""Shorter lines and paragraphs, in characters, are repeated by chance."""
_BLANKS: Final = re.compile(r"[ \t]{20,}|\n(?:[ \t]*\n){3,}")
_PARAGRAPHS: Final = re.compile(r"\n[ \t]*\n")
CONTEXT: Final = "shared text"


# text that is sent again


def shared_text(outlook: Outlook) -> Finding | None:
    """Text at the beginning of several prompts, or within them, that is no context yet."""
    if _shared_value(outlook.record.plan) is not None:  # `shared_values` speaks of it
        return None
    characters, numbers = _common_prefix(outlook)
    words = "begin with the same"
    if characters < LEAST_PREFIX * CHARS_PER_TOKEN:
        characters, numbers = _common_lines(outlook.record.plan)
        words = "have the same"
    tokens = characters // CHARS_PER_TOKEN
    if tokens < LEAST_PREFIX:
        return None
    names = [outlook.record.plan.names[one] for one in numbers]
    measured = f"{len(names)} prompts {words} {tokens:,} tokens, estimated, and each pays for them."
    change = f"Put that text into a variable, and make it the context of {some_of(names)}."
    told = _as_context(outlook, numbers, Rewritten(0, CONTEXT, characters, characters), measured, change)
    told = replace(told, rule="shared text is paid for once")
    return told.at(some_of(names), "%%agent NAME --context VARIABLE, and the prompt without that text")


def shared_values(outlook: Outlook) -> Finding | None:
    """A long value that several prompts contain: as their context it is paid for once."""
    best = _shared_value(outlook.record.plan)
    if best is None:
        return None
    text, name, numbers = best
    names = [outlook.record.plan.names[one] for one in numbers]
    tokens = len(text) // CHARS_PER_TOKEN
    measured = f"{{{{ {name} }}}} stands in {len(names)} prompts, {tokens:,} tokens each time."
    change = f"Give it to {some_of(names)} as --context {name}, and take {{{{ {name} }}}} out of their prompts."
    shared = Rewritten(0, CONTEXT, len(text), len(text.encode(errors="replace")))
    plan = outlook.record.plan
    options = {one: {"context": name, "prompt": without_value(plan[one].prompt, name)} for one in names}
    options = options if all(each["prompt"].strip() for each in options.values()) else {}
    return _as_context(outlook, numbers, shared, measured, change).at(some_of(names), f"--context {name}", options)


def shared_documents(outlook: Outlook) -> Finding | None:
    """Pictures and documents that several agents attach: as their context they are paid for once."""
    plan, seen = outlook.record.plan, outlook.seen
    best: tuple[int, int, str, list[int]] | None = None
    for name, value in plan.values.items():
        users = [at for at, one in enumerate(plan.agents) if name in one.attach and one.context is None]
        files: tuple[Any, ...] = tuple(value) if type(value) in {list, tuple} else (value,)
        if len(users) < 2 or not files or not all(isinstance(one, Attachment) for one in files):
            continue
        rule = facts_of(outlook.record.terms, seen[users[0]].model).token_rule
        tokens, most = context_tokens(files, rule)
        known = [one for at in users if (one := seen[at].input_tokens) is not None]
        tokens = min([tokens, *known])  # a page has fewer than are usual
        if tokens >= LEAST_PREFIX and (best is None or tokens * len(users) > best[0] * len(best[3])):
            best = (tokens, most, name, users)
    if best is None:
        return None
    tokens, most, name, users = best
    names = [plan.names[one] for one in users]
    measured = f"{name} is attached by {len(names)} agents, about {tokens:,} tokens each time."
    change = f"Give it to {some_of(names)} as --context {name}, in place of --attach {name}."
    told = _as_context(outlook, users, Rewritten(0, CONTEXT, size=most, tokens=tokens), measured, change)
    told = replace(told, rule="a shared document is a context")
    attached = {one: tuple(other for other in plan[one].attach if other != name) for one in names}
    options = {one: {"context": name, "attach": rest} for one, rest in attached.items()}
    return told.at(some_of(names), f"--context {name} in place of --attach {name}", options)


def _as_context(outlook: Outlook, numbers: Sequence[int], shared: Rewritten, measured: str, change: str) -> Finding:
    cache = "auto" if outlook.policy.cache == "off" else outlook.policy.cache
    policy = replace(outlook.policy, cache=cache)
    changed = outlook.ask(policy=policy, rewritten=dict.fromkeys(numbers, shared))
    change = change if cheapens(outlook, outlook.saves_usd(changed)) else ""
    told = found(outlook, "shared text is a context", measured, f"{TOKENS}: context once", changed, change)
    return replace(told, basis="assumed", assumed="its tokens are its share of the prompt by characters")


def _shared_value(plan: Plan) -> tuple[str, str, list[int]] | None:
    # Agents that have a context are left out: they can have no other.
    best: tuple[int, str, str, list[int]] | None = None
    for name, value in plan.values.items():
        users = [
            number
            for number, one in enumerate(plan.agents)
            if not one.is_task and name in one.template.whole and one.context is None
        ]
        if len(users) < 2:
            continue
        try:
            text = "" if holds_content(value) else value_text(name, value)
        except RenderError:  # no text that could be shared
            continue
        if len(text) >= LEAST_PREFIX * CHARS_PER_TOKEN:
            row = (len(text) * (len(users) - 1), text, name, users)
            best = row if best is None or row[0] > best[0] else best
    return None if best is None else best[1:]


def _common_prefix(outlook: Outlook) -> tuple[int, Sequence[int]]:
    prompts: dict[str, list[tuple[str, int]]] = {}
    for number, one in enumerate(outlook.record.results):
        if one.attempts and outlook.record.plan.agents[number].context is None:
            prompts.setdefault(one.model, []).append((one.attempts[-1].request.prompt, number))
    best: tuple[int, str, str] = (0, "", "")
    for model, rows in prompts.items():
        rows.sort()
        for (text, _), (after, _) in itertools.pairwise(rows):
            same = _same(text, after)
            if same > best[0]:
                best = (same, text, model)
    same, text, model = best
    if not same:
        return 0, ()
    return same, sorted(number for other, number in prompts[model] if other.startswith(text[:same]))


def _same(one: str, other: str) -> int:
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _common_lines(plan: Plan) -> tuple[int, Sequence[int]]:
    """Return the characters of lines shared by the same agents, most savings first, and the agents."""
    by_prompt: dict[str, list[int]] = {}
    for number, one in enumerate(plan.agents):
        if not one.is_task and one.context is None:
            by_prompt.setdefault(one.prompt, []).append(number)
    prompts = list(by_prompt)
    where: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        lines = dict.fromkeys(line.strip() for line in BRACES.sub("\n", prompt).splitlines())
        for line in lines:
            if len(line) >= LEAST_LINE:
                where.setdefault(line, []).append(index)
    lengths = Counter[tuple[int, ...]]()
    for line, places in where.items():
        lengths[tuple(places)] += len(line) + 1

    def sent_again(places: tuple[int, ...]) -> int:
        return lengths[places] * (sum(len(by_prompt[prompts[one]]) for one in places) - 1)

    best = max(lengths, key=sent_again, default=())
    if not best or not sent_again(best):
        return 0, ()
    return lengths[best], sorted(number for one in best for number in by_prompt[prompts[one]])


def said_twice(outlook: Outlook) -> Finding | None:
    """Paragraphs that are repeated in one prompt, and long runs of blanks."""
    rows: dict[int, Rewritten] = {}
    for number, one in enumerate(outlook.record.results):
        spared = _spared(one.attempts[-1].request.prompt) if one.attempts else 0
        if spared >= LEAST_PARAGRAPH:
            rows[number] = Rewritten(spared)
    if not rows:
        return None
    changed = outlook.ask(rewritten=rows)
    if not (cheapens(outlook, outlook.saves_usd(changed)) or pays(outlook, changed)):
        return None
    names = [outlook.record.plan.names[one] for one in sorted(rows, key=lambda one: -rows[one].spared)]
    tokens = round(sum(one.spared * outlook.seen[number].per_character for number, one in rows.items()))
    measured = f"About {tokens:,} tokens are paragraphs that stand twice in the prompt of {some_of(names)}, or blanks."
    change = f"Say it once in the prompt of {some_of(names)}, or clean the value that it comes from."
    told = found(outlook, "nothing is said twice", measured, f"{TOKENS}: context once", changed, change)
    told = replace(told, basis="assumed", assumed="tokens by characters, and the same answers")
    return told.at(some_of(names), f"each paragraph once in the prompt of {names[0]}")


def _spared(prompt: str) -> int:
    blank = sum(len(one.group()) - 1 for one in _BLANKS.finditer(prompt))
    counts = Counter(part.strip() for part in _PARAGRAPHS.split(prompt))
    return blank + sum(len(text) * (count - 1) for text, count in counts.items() if len(text) >= LEAST_PARAGRAPH)


# room, effort and the cache's life


def room_for_answers(outlook: Outlook) -> Finding | None:
    """Answers much shorter than `max_tokens`, which a budget reserves in full for each request."""
    longest = dict[str, int]()
    asked = [(number, one) for number, one in enumerate(outlook.seen) if not one.is_task and not _calls(one)]
    for number, one in asked:
        name = outlook.names[number]
        longest[name] = max(longest.get(name, 0), one.output_tokens or 0)
    caps = {name: ROUNDED * math.ceil(HEADROOM * most / ROUNDED) for name, most in longest.items() if most}
    lower = {
        number: cap
        for number, one in asked
        if (cap := caps.get(outlook.names[number])) is not None and cap * 2 <= one.max_tokens
    }
    if not lower:
        return None
    changed = outlook.ask(max_tokens=lower)
    more = changed.totals.succeeded - outlook.as_it_was.totals.succeeded
    if more <= 0 and not pays(outlook, changed):
        return None
    names = list(dict.fromkeys(outlook.names[number] for number in lower))
    most = max(outlook.seen[number].max_tokens for number in lower)
    measured = (
        f"The longest answer of {some_of(names)} has {max(longest[name] for name in names):,} tokens, "
        f"and each request sets {most:,} aside from the budget."
    )
    edits = ", ".join(f"--max-tokens {caps[name]} on {name}" for name in names[:4])
    fits = f", and {plural(more, 'more answer')} fit{'s' * (more == 1)} into the budget" if more > 0 else ""
    change = f"Lower max_tokens of {some_of(names)}{fits}."
    source = "budgets: the worst case of each request is set aside before it is sent"
    told = found(outlook, "max_tokens near the answers", measured, source, changed, change)
    assumed = "; ".join(filter(None, [told.assumed, "answers as long as recorded: a longer one would be cut"]))
    options = {outlook.record.plan.names[number]: {"max_tokens": cap} for number, cap in lower.items()}
    return replace(told, assumed=assumed).at(some_of(names), edits, options)


def _calls(seen: Seen) -> bool:
    """Return whether an agent called tools: the rule is then silent, since turns are not read."""
    return any(one.tools for one in seen.tries)


def high_effort(outlook: Outlook) -> Finding | None:
    """A declared effort if most of the output is hidden thinking."""
    plan, total = outlook.record.plan, outlook.as_it_was.cost_usd
    thought = {number: hidden for number, one in enumerate(outlook.seen) if (hidden := _thought(one))}
    if not thought or not total:
        return None
    lower = {number: EFFORTS[EFFORTS.index(outlook.seen[number].effort or "") - 1] for number in thought}
    one = next(iter(set(lower.values()))) if len(set(lower.values())) == 1 else None
    graded = None if one is None else verdict_on(outlook, list(lower), effort=one)
    if graded is not None and graded.verdict != "undecided":  # `by_grades` speaks of it, or it is worse
        return None
    changed = outlook.ask(efforts=lower, ranges=True)
    tried, least = changed.note.basis != "assumed", changed.note.cost_range_usd
    best = outlook.saves_usd(changed) if tried else None if least is None else total - least[0]
    if not cheapens(outlook, best):
        return None
    names = list(dict.fromkeys(outlook.names[number] for number in thought))
    now = ", ".join(dict.fromkeys(str(outlook.seen[number].effort) for number in thought))
    then = ", ".join(dict.fromkeys(lower.values()))
    output = sum(outlook.seen[number].output_tokens or 0 for number in thought)
    measured = (
        f"With effort {now} about {sum(thought.values()):,} of {output:,} output tokens of {some_of(names)} "
        "are in no answer: most likely they are thinking."
    )
    group = next((name for name in names if name in plan.groups), None)
    grade = f"await run.trial({group!r}, effort=[{then!r}, {now!r}], truth=...)" if group else "read both answers"
    hope = "" if tried else f" Untried: it saves {dollars(best)} at best."
    quality = f"Quality is not measured: {grade}." if graded is None else f"In a trial {how_sure(graded)}."
    change = f"Try effort {then} for {some_of(names)}.{hope} {quality}"
    apply = {plan.names[number]: effort for number, effort in lower.items()}
    told = found(outlook, "effort by the task", measured, "the vendor's page on effort", changed, change, effort=apply)
    if not tried:  # the same length is no forecast of a lower effort's purpose
        told = replace(told, saves_s=None, saves_usd=None, forecast_s=None, forecast_usd=None)
    return told.at(some_of(names), f"--effort {then}")


def _thought(seen: Seen) -> int:
    if seen.is_task or not seen.answered or seen.effort not in EFFORTS[1:] or _calls(seen):
        return 0
    output = seen.output_tokens or 0
    hidden = output - seen.text_characters // CHARS_PER_TOKEN
    return hidden if hidden >= LEAST_THOUGHT and hidden > MOSTLY * output else 0


def cache_life(outlook: Outlook) -> Finding | None:
    """The cache lifetime of a shared context, against the gaps between its uses."""
    plan, policy = outlook.record.plan, outlook.policy
    users = Counter(one.context for one in plan.agents if one.context is not None)
    if policy.cache == "off" or not any(count > 1 for count in users.values()):
        return None
    ways: Mapping[str, Forecast] = {
        **{f"cache_ttl={ttl!r}": outlook.under(cache_ttl=ttl) for ttl in LIFE_S},
        "cache='off'": outlook.under(cache="off"),
    }
    priced = {way: changed.cost_usd for way, changed in ways.items() if changed.cost_usd is not None}
    if not priced:
        return None
    best = min(priced, key=lambda way: priced[way])
    if not cheapens(outlook, outlook.saves_usd(ways[best])):
        return None
    gap_s, name = max(_gaps(outlook), default=(0.0, users.most_common(1)[0][0]))
    lived = next((one.ttl for one in outlook.record.facts.requests if one.cached), None)
    kept = f"the run has cache_ttl={policy.cache_ttl!r}" if lived is None else f"it was cached for {lived}"
    measured = f"Uses of {name} are up to {seconds(gap_s)} apart, and {kept}."
    option, _, word = best.partition("=")
    change = f"Run it with {best}: {_WHY[word]}."
    apply = {option: word.strip("'")}
    told = found(outlook, "the cache lives as long as needed", measured, CACHING, ways[best], change, **apply)
    return told.at(name, f"%agents run --{option.replace('_', '-')} {apply[option]}")


_WHY: Final = {
    "'5m'": "what is used again at once need not be kept for an hour, which costs twice the input to write",
    "'1h'": "it is then written once, not again after each gap of more than five minutes",
    "'off'": "it is used too seldom to earn back what writing it costs",
}


def _gaps(outlook: Outlook) -> list[tuple[float, str]]:
    starts: dict[tuple[str, str], list[float]] = {}
    for number, one in enumerate(outlook.record.results):
        context = outlook.record.plan.agents[number].context
        if context is not None:
            starts.setdefault((one.model, context), []).extend(attempt.granted_s for attempt in one.attempts)
    return [
        (max((later - earlier for earlier, later in itertools.pairwise(sorted(at_s))), default=0.0), context)
        for (_, context), at_s in starts.items()
    ]
