"""The requests of a plan: written when their parents are done, and bounded before they are sent."""

from __future__ import annotations

import json
import math
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL, Agent
from agent_magic.declare.answers.lenient import decoded, written
from agent_magic.declare.answers.reading import numbered
from agent_magic.declare.content import LEFT_OUT, fitting, tokens_of
from agent_magic.declare.each import for_all
from agent_magic.declare.grouping import taken_apart
from agent_magic.declare.resources import held_beside
from agent_magic.declare.template import ANSWER, condition_of, holds
from agent_magic.engine.admission.budget import NOTHING, Worst, worst_case
from agent_magic.engine.admission.prefix import context_tokens, shared_prefixes
from agent_magic.engine.calls import Wanted
from agent_magic.engine.contract import Need
from agent_magic.engine.policy import batching_of
from agent_magic.errors import AgentMagicError, Capped, DeclarationError, Escalated, InvalidAnswer, Refused
from agent_magic.record.answer import CHARS_PER_TOKEN, CUT, PAUSED, TOOL_USE, TURNS, Usage
from agent_magic.record.events import new_tuple
from agent_magic.record.request import Message, Request, continued, going_on, read_blocks, rows_of, said, same_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.declare.flow import Flow, Left
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.engine.calls import Call, Result
    from agent_magic.engine.policy import Policy
    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer, Price
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Ttl
    from agent_magic.record.terms import ModelFacts

OVERHEAD_TOKENS = 16
"""Tokens the API adds around a message's text, at most a few."""
LONGEST_TOKEN = 16
"""Bytes per token, generously: if the text does not fit a budget even so, counting cannot help."""
HALF = {
    **CUT,
    PAUSED: "Raise --max-turns.",
    TOOL_USE: "Raise --max-turns.",
}
"""Stop reasons of a truncated document, and the remedy."""


def model_of(agent: Step) -> str:
    return "" if agent.is_task else agent.model or DEFAULT_MODEL


def timeouts_of(plan: Plan, policy: Policy) -> list[float]:
    found = [one.timeout_s or (math.inf if one.is_task else policy.timeout_s) for one in plan.firsts]
    return [*for_all(found, plan.dag.alike)]


def ask(
    plan: Plan,
    number: int,
    answers: Mapping[str, Any],
    timeout_s: float,
    *,
    ttl: Ttl | None = None,
    ahead: bool = False,
) -> Request:
    """Write the request of an agent; `ahead` uses placeholders for missing answers (`Plan.prompt_ahead`)."""
    agent = plan.agents[number]
    prompt = plan.prompt_ahead(number, answers) if ahead else plan.prompt_of(number, answers)
    context = None if agent.context is None else plan.context_of(number)
    asked = (
        agent.model or DEFAULT_MODEL,
        prompt.text,
        agent.max_tokens or DEFAULT_MAX_TOKENS,
        agent.system_text,
        context if isinstance(context, str) else None,  # a document stands in the prompt
        ttl is not None,
        agent.effort,
        agent.timeout_s or timeout_s,
        ttl or "5m",
        (),
        agent.tools_text,
        "" if agent.returns is None else agent.returns.schema,
        "",
        prompt.attachments,
        agent.cite,
        False,
        (),
        prompt.shared,
        agent.sent,
        0,
    )
    return new_tuple(Request, asked)


def _content(answer: Answer, *, keeps: bool) -> str:
    if answer.content is not None or keeps:
        return answer.content or "[]"
    return json.dumps([{"type": "text", "text": answer.text}]) if answer.text.strip() else ""


class _Turn(NamedTuple):
    """A response with tool calls, and the results of finished ones by number."""

    answer: Answer
    calls: int
    ended: dict[int, tuple[str, Result]]


def _last(request: Request) -> Request:
    return request._replace(tool_choice="none", cached_turns=False) if request.tools else request


def _broken_off(answer: Answer) -> CallError | None:
    if answer.stop_reason in HALF:
        return Capped(f"The answer was cut ({answer.stop_reason}), so it is no value. {HALF[answer.stop_reason]}")
    if answer.stop_reason == "refusal":
        return Refused("The model declined to answer, so there is no value.", category=answer.refusal)
    return None


def _without(block: dict[str, Any], sha: str) -> dict[str, Any]:
    is_it = block.get("source", {}).get("data") == sha
    return {"type": "text", "text": LEFT_OUT} if is_it else block


def _result_block(id_: str, result: Result) -> dict[str, Any]:
    """Return the result block of a call: each has exactly one, failed calls too."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id_}
    if result.text:
        block["content"] = read_blocks(result.text) if result.blocks else result.text
    return block if result.status == "succeeded" else {**block, "is_error": True}


class Bought(Protocol):
    """Knows which answers need not be bought again."""

    def is_there(self, agent: int, request: Request) -> bool: ...

    def taken_over(self, agent: int, request: Request) -> Answer | None: ...

    def is_fresh(self, agent: int) -> bool: ...


class PlanChoices:
    """Decides by the answers so far."""

    def __init__(self, flow: Flow, answers: dict[str, Any]) -> None:
        self._flow, self._answers = flow, answers
        self.decides, self.ahead_of = flow.decides, flow.ahead_of

    def choose(self, step: int, left: Mapping[int, Left]) -> Left | None:
        found = self._flow.choose(step, self._answers, left)
        if found is not None and step in self.ahead_of:  # its answer may be there, and is thrown away
            self._answers.pop(self._flow.names[step], None)
        return found


def escalation_of(plan: Plan, step: int, answer: Answer) -> CallError | None:
    agent = plan.agents[step]
    if agent.escalate is None:
        return None
    try:
        met = holds(condition_of(agent.escalate, agent.name, "escalate"), {ANSWER: plan.meaning_of(step, answer.text)})
    except AgentMagicError as error:
        return InvalidAnswer(f"its escalate cannot be decided: {error}", mendable=False)
    return Escalated(agent.escalate) if met else None


class PlanRequests:
    """Writes the requests of a plan's agents and bounds the use of each.

    No token is shorter than a byte: a bound before counting, but four times too high.
    """

    def __init__(  # noqa: PLR0913 - all that a request stands on
        self,
        plan: Plan,
        policy: Policy,
        models: Sequence[str],
        facts: Mapping[str, ModelFacts],
        prices: Prices,
        *,
        bought: Bought | None = None,
        work_s: Sequence[float] | None = None,
        texts: Mapping[str, Any] | None = None,
        cheaper: Sequence[str] = (),
        said: Callable[[int], Request | None] = lambda _: None,
    ) -> None:
        self._plan, self._policy, self._prices, self._bought = plan, policy, prices, bought
        self._said, self._continued = said, plan.in_conversations
        self.models, self._facts, self._planned = list(models), facts, tuple(models)
        self.limit_classes = [facts[model].limit_class if model else "" for model in models]
        self.batching = batching_of(plan, policy)
        by_batch = () if self.batching is None else self.batching.steps
        self.prefixes = shared_prefixes(plan, models, facts, policy, work_s, by_batch)
        self._texts: dict[str, Any] = dict(texts or {})
        self._written: dict[int, Request] = {}
        self._stopped: set[int] = set()
        self._so_far: dict[int, tuple[Message, ...]] = {}
        self._returned: dict[int, tuple[Attachment, ...]] = {}
        self._fallbacks: dict[int, list[str]] = {}
        self._cascades: dict[int, list[str]] = {}
        self.checked: dict[int, bool] = {}
        self.tasks: dict[int, Wanted] = {}
        self.flow = None if plan.flow is None else PlanChoices(plan.flow, self._texts)
        self.asked_of: set[int] = set()
        self.holds, self.saved = plan.holds, plan.saves
        for number in plan.special:
            one = plan.agents[number]
            if not one.is_task and (one.returns is not None or one.check is not None):
                self.checked[number] = one.returns is not None
            if one.is_task:
                self.tasks[number] = Wanted("", one.name, "", code=one.source_sha)
            if one.ask:
                self.asked_of.add(number)
            if one.other_models:
                self._fallbacks[number] = [model for model in one.fallback if model != models[number]]
                self._cascades[number] = dearer = [*one.cascade[1:]]
                if dearer:
                    self.checked.setdefault(number, False)
        self._cheaper = cheaper
        self._eased: dict[int, str | None] = {}  # the effort of agents with cheaper requests
        self._eased_now: set[int] = set()
        self._by_item: dict[int, list[str]] = {}  # the answers so far of a request for several items
        self._turn: dict[int, _Turn] = {}
        self._turns: dict[int, int] = {}  # how many turns a conversation has had
        self._answered_by: dict[str, set[str]] = {}  # per model that was asked, others in whose name answers came
        uncapped = policy.budget_usd is policy.budget_tokens is policy.max_usd_per_min is None
        self._counting = None if uncapped else Counting()

    @property
    def falls_back(self) -> bool:
        return any(self._fallbacks.values())

    def max_turns(self, step: int) -> int:
        return self._plan.agents[step].max_turns or self._policy.max_turns

    def write(self, step: int) -> Request:
        if step in self._stopped:
            raise CancelledError
        if step in self._written:
            return self._written.pop(step)
        ttl = None if self.prefixes is None else self.prefixes.ttl(step)
        first = ask(self._plan, step, self._texts, self._policy.timeout_s, ttl=ttl)
        if first.model != self.models[step]:
            first = first._replace(model=self.models[step])
        if step in self._eased:
            first = first._replace(effort=self._eased[step])
        name = self._plan.continued(step, self._texts)
        if name is not None and (before := self._said(self._plan.index[name])) is not None:
            first = going_on(first, before)
        if (first.tools or step in self._continued) and self._policy.cache != "off" and not self._goes_by_batch(step):
            first = first._replace(cached_turns=True)
        if step in self._so_far:
            messages, returned = self._so_far[step], self._returned.get(step, ())
            first = first._replace(messages=(*first.messages, *messages), returned=(*first.returned, *returned))
        elif not (first.tools and self._plan.agents[step].tools.functions):
            return first  # a server's own tools need no second turn
        if self._turns.get(step, 0) + 1 < self.max_turns(step):
            return first
        return _last(first)._replace(cached_turns=first.cached_turns and step in self._continued)

    def fall_back(self, step: int) -> bool:
        # A model cannot continue another model's conversation: it would silently lose the reasoning.
        if step in self._eased_now:
            self._eased_now.discard(step)
            return True
        left = self._fallbacks.get(step)
        if not left or step in self._so_far:
            return False
        self._ask_other(step, left.pop(0))
        return True

    def shares(self, step: int) -> bool:
        # A cache belongs to a model. With another effort, a text context before the messages is still read;
        # pictures and documents are not. Source: the vendor's page on prompt caching.
        context = self._plan.agents[step].context
        in_messages = context is not None and context in self._plan.documents
        return self.models[step] == self._planned[step] and not (step in self._eased and in_messages)

    def ease(self, step: int) -> bool:
        if step in self._eased or step in self._so_far or self._goes_by_batch(step):
            return False
        allowed, model, before = self._policy.degrade or "", self.models[step], self._plan.agents[step].effort
        effort = "low" if "effort" in allowed and before not in {None, "low"} else before
        cheapest = self._cheapest(step) if "model" in allowed else model
        if (cheapest, effort) == (model, before):
            return False
        self._eased[step] = effort
        self._ask_other(step, cheapest)
        self._eased_now.add(step)
        return True

    def _cheapest(self, step: int) -> str:
        agent, usage = self._plan.agents[step], Usage(1000, output_tokens=1000)
        cheaper = () if agent.sent else self._cheaper  # other options are only known to suit its own models
        models = (self.models[step], *agent.fallback, *cheaper)
        costs = {model: cost for model in models if (cost := self._prices.of(model, usage).cost_usd) is not None}
        return min(costs, key=costs.__getitem__) if self.models[step] in costs else self.models[step]

    def escalate(self, step: int) -> None:
        self._ask_other(step, self._cascades[step].pop(0))

    def _ask_other(self, step: int, model: str) -> None:
        self.models[step], self.limit_classes[step] = model, self._facts[model].limit_class
        self._written.pop(step, None)
        if self._counting is not None:
            self._counting.forget(step)

    def need(self, step: int) -> Need:
        try:
            request = self._written.setdefault(step, self.write(step))
        except (DeclarationError, CancelledError) as error:
            if isinstance(error, CancelledError):  # the user stopped its prompt's code, which may never end by itself
                self._stopped.add(step)
            return Need(self.models[step], 0, 0, NOTHING)
        counting = self._counting
        if self._bought is not None and self._bought.is_there(step, request):
            return Need(request.model, 0, 0, NOTHING, free=True)
        worst, least = (NOTHING, None) if counting is None else self._worst(step, request, counting)
        tokens = sum(map(len, request.texts())) // CHARS_PER_TOKEN + OVERHEAD_TOKENS + self._attached(request)[0]
        shared = self._shared(step, request)[0]
        keeps = request.goes_on and step not in self.checked and step not in self.asked_of
        keeps = keeps and self._policy.on_max_tokens != "fail"
        return Need(request.model, tokens, request.max_tokens, worst, shared_tokens=shared, least=least, keeps=keeps)

    def identity(self, step: int) -> Hashable:
        if step in self._so_far or not rows_of(self._plan, step):
            return None
        try:
            request = self._written.setdefault(step, self.write(step))
        except (DeclarationError, CancelledError) as error:  # told when it is sent
            if isinstance(error, CancelledError):
                self._stopped.add(step)
            return None
        if self._bought is None:
            return same_of(self._plan, step, request)
        if self._bought.taken_over(step, request) is not None:
            return None
        return same_of(self._plan, step, request, fresh=self._bought.is_fresh(step))

    def _goes_by_batch(self, step: int) -> bool:
        return self.batching is not None and step in self.batching.now

    def count(self, step: int) -> bool:
        return self._counting is not None and self._counting.ask(step, self._written[step])

    def close(self, step: int) -> bool:
        request = self._written[step]
        self._written[step] = _last(request)._replace(cached_turns=request.cached_turns and step in self._continued)
        return request != self._written[step]

    def to_count(self) -> list[tuple[int, Request]]:
        return [] if self._counting is None else self._counting.to_count()

    def counted(self, step: int, tokens: int | None) -> None:
        if self._counting is not None:
            self._counting.counted(step, tokens)

    def used(self, step: int, usage: Usage, model: str) -> None:
        if self._counting is not None:
            self._counting.used(step, usage)
            if model not in {"", self.models[step]}:
                self._answered_by.setdefault(self.models[step], set()).add(model)

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None:
        if answer is None:
            self._so_far.pop(step, None)
            self._returned.pop(step, None)
            self._turns.pop(step, None)
            self._turn.pop(step, None)
        else:
            self._turns[step] = self._turns.get(step, 0) + 1
            before = self._so_far.get(step, ())
            if content := _content(answer, keeps=not reply):
                before = continued(before, content)
            self._so_far[step] = said(before, reply) if reply else before
        if self._counting is not None:
            self._counting.forget(step)

    def is_silent(self, answer: Answer) -> bool:
        return not answer.text.strip()

    def fault(self, step: int, answer: Answer) -> CallError | None:
        found = self._fault(step, answer)
        if answer.edited:  # the user has decided, and no model is asked to mend it
            why = f"the edited answer does not fit: {found}. %agents edit changes it, or --undo takes it back"
            return None if found is None else InvalidAnswer(why, mendable=False)
        if not self._cascades.get(step) or not (found is None or (isinstance(found, InvalidAnswer) and found.mendable)):
            return found
        if found is not None:
            return Escalated(str(found))
        return escalation_of(self._plan, step, answer)

    def _fault(self, step: int, answer: Answer) -> CallError | None:
        agent = self._plan.agents[step]
        try:
            if agent.part is not None and agent.part.asks:
                return self._fault_by_item(step, answer)
            if agent.returns is not None and (fault := _broken_off(answer)) is not None:
                return fault
            value = answer.text if agent.returns is None else agent.returns.value(answer.text)
            if agent.check is not None:
                agent.check.run(value)
        except InvalidAnswer as error:
            return error
        except AgentMagicError as error:  # a check may use this package too
            return InvalidAnswer(f"its check raised {type(error).__name__}: {error}", mendable=False)
        except CancelledError:  # the user stopped the check, which may never end by itself
            return InvalidAnswer("its check was stopped", mendable=False)
        return None

    def _fault_by_item(self, step: int, answer: Answer) -> CallError | None:
        """Return the items missing from a group's answer, unless asking again cannot help."""
        before = self._by_item.get(step, []) if step in self._so_far else []  # else it is a new conversation
        agent, good, fault = self._plan.agents[step], 0, _broken_off(answer)
        if fault is None:
            try:
                numbered(answer.text)  # a reply without JSON settles nothing
                good, fault = taken_apart(agent, "".join([*before, answer.text]))
                self._by_item[step] = [*before, answer.text]
            except InvalidAnswer as error:
                fault = error
        if before and not good:
            good = taken_apart(agent, "".join(before))[0]
        again = isinstance(fault, InvalidAnswer) and fault.again
        last = not again or self._turns.get(step, 0) + 1 >= self.max_turns(step)
        return None if good and last else fault

    def answered(self, step: int, text: str) -> None:
        if self._by_item:
            text = "".join(self._by_item.pop(step, (text,)))
        is_typed = step in self.checked and (self.flow is not None or self._plan.dag.children[step])
        self._texts[self._plan.agents[step].name] = self._plan.meaning_of(step, text) if is_typed else text

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        agent = self._plan.agents[step]
        if answer.stop_reason not in TURNS or not isinstance(agent, Agent) or not agent.tools:
            return ()
        blocks: Any = [one for one in decoded(answer.content or "[]") if isinstance(one, dict)]
        found = [self._wanted(step, agent, one) for one in blocks if one.get("type") == "tool_use"]
        if found:
            self._turn[step] = _Turn(answer, len(found), {})
        return found

    def _wanted(self, step: int, agent: Agent, one: Mapping[str, Any]) -> Wanted:
        id_, name = str(one.get("id", "")), str(one.get("name", ""))
        arguments = written(one.get("input", {}), ", ", ": ")
        tool = agent.tools.named(name)
        if tool is None:
            return Wanted(id_, name, arguments)
        holds = held_beside(self.holds.get(step, ()), tool.uses, tool.writes)
        return Wanted(id_, name, arguments, tool.alone, tool.ask, holds, tool.source_sha)

    def called(self, call: Call, result: Result) -> None:
        step = call.step
        if step in self.tasks:
            if result.status == "succeeded":
                agent = self._plan.agents[step]
                is_row = agent.part is not None and agent.part.asked
                self._texts[agent.name] = self._plan.meaning_of(step, result.value) if is_row else result.value
            return
        turn = self._turn[step]
        turn.ended[call.number] = call.wanted.id, result
        if len(turn.ended) == turn.calls:
            del self._turn[step]
            self.continue_turn(step, turn.answer)
            ended = [one for _, one in sorted(turn.ended.items())]
            results = [_result_block(*one) for one in ended]
            if any(one.files for _, one in ended):
                self._take_files(step, ended, results)
            self._so_far[step] = (*self._so_far[step], Message("user", json.dumps(results, ensure_ascii=True)))

    def _take_files(self, step: int, ended: Sequence[tuple[str, Result]], results: list[dict[str, Any]]) -> None:
        sent = [one.attachment for one in self._plan.prompt_of(step, self._texts).attachments]
        sent += self._returned.get(step, ())
        written = sum(len(one.content) for one in self._so_far[step]) + len(json.dumps(results))
        files = [(number, file) for number, (_, one) in enumerate(ended) for file in one.files]
        fits = fitting(sent, [file for _, file in files], written)
        gone = [(number, file.sha256) for (number, file), fit in zip(files, fits, strict=True) if not fit]
        for number, sha in gone:
            blocks = results[number]["content"]
            results[number]["content"] = [_without(one, sha) for one in blocks]
        kept = (file for (_, file), fit in zip(files, fits, strict=True) if fit)
        self._returned[step] = (*self._returned.get(step, ()), *kept)

    def _worst(self, step: int, request: Request, counting: Counting) -> tuple[Worst, Worst | None]:
        """Return a request's worst case, and if uncounted, that with the longest tokens."""
        by_batch = self._goes_by_batch(step)
        least, most = self._attached(request)
        size = len("".join(request.texts()).encode(errors="replace")) + OVERHEAD_TOKENS + most
        size, was_counted = counting.bound(step, request.model, size)
        if was_counted:
            return self._cost(step, request, size, by_batch=by_batch), None
        shortest = least // 2 + (size - most) // LONGEST_TOKEN
        costs = [self._cost(step, request, one, by_batch=by_batch) for one in (size, shortest)]
        return costs[0], costs[1]

    def _attached(self, request: Request) -> tuple[int, int]:
        return tokens_of(request.files, self._facts[request.model].token_rule) if request.files else (0, 0)

    def _shared(self, step: int, request: Request) -> tuple[int, int]:
        if not request.cached:
            return 0, 0
        return context_tokens(request.context or self._plan.context_of(step), self._facts[request.model].token_rule)

    def _cost(self, step: int, request: Request, size: int, *, by_batch: bool) -> Worst:
        def price_of(usage: Usage) -> Price:
            price = self._prices.of(request.model, usage)
            for answered in self._answered_by.get(request.model, ()):
                other = self._prices.of_answer(request.model, answered, usage)
                if price.cost_usd is not None and (other.cost_usd or 0.0) > price.cost_usd:
                    price = other
            return price

        return worst_case(
            size,
            request.max_tokens,
            price_of,
            shared=self._shared(step, request)[1],
            ttl=request.ttl,
            caches=request.cached_turns,
            searches=self._plan.agents[step].tools.most_searches if request.tools else 0,
            by_batch=by_batch,
        )


class Counting:
    """Knows the input tokens of a run's requests."""

    def __init__(self) -> None:
        self._counted: dict[int, int | None] = {}
        self._uncounted: list[tuple[int, Request]] = []
        self._asked: set[int] = set()
        self._countless = False
        self._expected: dict[int, tuple[str, int, int | None]] = {}
        self._excess: dict[bool, dict[str, int]] = {False: {}, True: {}}  # of bounds by bytes, and by counts

    def ask(self, step: int, request: Request) -> bool:
        if step in self._asked:
            return True
        if self._countless:
            return False
        self._asked.add(step)
        self._uncounted.append((step, request))
        return True

    def to_count(self) -> list[tuple[int, Request]]:
        found, self._uncounted = self._uncounted, []
        return found

    def counted(self, step: int, tokens: int | None) -> None:
        self._asked.discard(step)
        self._countless = self._countless or tokens is None
        self._counted[step] = tokens

    def forget(self, step: int) -> None:
        self._counted.pop(step, None)

    def bound(self, step: int, model: str, size: int) -> tuple[int, bool]:
        counted, excess = self._counted.get(step), self._excess[False].get(model, 0)
        self._expected[step] = model, size, counted
        if counted is None or excess:
            return size + excess, step in self._counted
        return counted + self._excess[True].get(model, 0), True

    def used(self, step: int, usage: Usage) -> None:
        if step not in self._expected:
            return
        model, most, counted = self._expected.pop(step)
        given = usage.total_input_tokens
        for is_counted, bound in ((False, most), (True, counted)):
            if given is not None and bound is not None and given > bound:
                known = self._excess[is_counted]
                known[model] = max(known.get(model, 0), given - bound)
