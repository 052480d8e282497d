"""The requests of a plan: written when their parents are done, and bounded before they are sent."""

from __future__ import annotations

import json
import math
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL, Agent
from agent_magic.declare.alike import for_all
from agent_magic.declare.condition import condition_of, holds
from agent_magic.declare.content import LEFT_OUT, fitting, tokens_of
from agent_magic.declare.grouping import taken_apart
from agent_magic.declare.models import ANSWER
from agent_magic.declare.resources import held_by
from agent_magic.engine.admission.budget import Worst
from agent_magic.engine.admission.prefix import context_tokens, shared_prefixes
from agent_magic.engine.admission.room import Need
from agent_magic.engine.batching import batching_of
from agent_magic.engine.calls import Wanted
from agent_magic.engine.counting import Counting
from agent_magic.errors import AgentMagicError, Capped, DeclarationError, Escalated, InvalidAnswer, Refused
from agent_magic.record.answer import CHARS_PER_TOKEN, PAUSED, TOOL_USE, TURNS, Usage
from agent_magic.record.made import made
from agent_magic.record.prices import of_batch
from agent_magic.record.request import Message, Request, continued, read_blocks, said

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.declare.flow import Flow, Left
    from agent_magic.declare.plan import Plan
    from agent_magic.declare.resources import Held
    from agent_magic.declare.step import Step
    from agent_magic.engine.calls import Call, Result
    from agent_magic.engine.policy import Policy
    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Ttl
    from agent_magic.record.terms import ModelFacts

OVERHEAD_TOKENS = 16
"""What the API adds to a message around its text, at most a few tokens."""
LONGEST_TOKEN = 16
"""Tokens are a few bytes long. Where no room would be for them if they were as long as this, nobody counts them."""
NOTHING = Worst(0.0, 0)
HALF = {
    "max_tokens": "Give it more with --max-tokens.",
    "model_context_window_exceeded": "Give it a shorter prompt.",
    PAUSED: "Raise --max-turns.",
    TOOL_USE: "Raise --max-turns.",
}
"""The stop reasons of half a document, and what helps."""


def model_of(agent: Step) -> str:
    """Return the model an agent asks; a task asks none."""
    return "" if agent.is_task else agent.model or DEFAULT_MODEL


def timeouts_of(plan: Plan, policy: Policy) -> list[float]:
    """Return per step, the seconds from its first request to its deadline. A task of its own has none."""
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
    """Write the request of the agent with this number.

    Args:
        plan: The plan.
        number: The agent.
        answers: What its parents answered, text or value.
        timeout_s: The deadline if it names none.
        ttl: For how long its context is to be cached; `None` does not ask for it.
        ahead: Whether answers are missing, placeholders in their place; see `Plan.prompt_ahead`.

    Raises:
        DeclarationError: Its prompt cannot be filled in.
    """
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
    )
    return made(Request, asked)


def _content(answer: Answer, *, keeps: bool) -> str:
    """Return the blocks of an answer as they go back: all as they came, or its text where that is all there was."""
    if answer.content is not None or keeps:
        return answer.content or "[]"
    return json.dumps([{"type": "text", "text": answer.text}]) if answer.text.strip() else ""


class _Turn(NamedTuple):
    """A response that asks for calls.

    Attributes:
        answer: The response.
        calls: How many there are.
        ended: Those that have ended, by number, with what came of each.
    """

    answer: Answer
    calls: int
    ended: dict[int, tuple[str, Result]]


def _last(request: Request) -> Request:
    """Return a request as one after which no tool is called: nothing reads what it would write to the cache."""
    return request._replace(tool_choice="none", cached_turns=False) if request.tools else request


def _broken_off(answer: Answer) -> CallError | None:
    """Return why a response is no value, whatever its text: it was cut, or declined."""
    if answer.stop_reason in HALF:
        return Capped(f"The answer was cut ({answer.stop_reason}), so it is no value. {HALF[answer.stop_reason]}")
    if answer.stop_reason == "refusal":
        return Refused("The model declined to answer, so there is no value.", category=answer.refusal)
    return None


def calls_in(answer: Answer) -> list[dict[str, Any]]:
    """Return the blocks of a response that ask for a call of a tool of ours, in order."""
    blocks: Any = json.loads(answer.content or "[]")
    return [one for one in blocks if isinstance(one, dict) and cast("dict[str, Any]", one).get("type") == "tool_use"]


def _without(block: dict[str, Any], sha: str) -> dict[str, Any]:
    """Return a block of a result, a text in its place where it is the picture or document of a sha256."""
    is_it = block.get("source", {}).get("data") == sha
    return {"type": "text", "text": LEFT_OUT} if is_it else block


def _result_block(id_: str, result: Result) -> dict[str, Any]:
    """Write what the model gets of a call: each has exactly one result, a failed one too."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id_}
    if result.text:
        block["content"] = read_blocks(result.text) if result.blocks else result.text
    return block if result.status == "succeeded" else {**block, "is_error": True}


class Bought(Protocol):
    """Whoever knows which answers need not be bought again."""

    def is_there(self, agent: int, request: Request) -> bool:
        """Tell whether the answer is there already."""
        ...


class PlanChoices:
    """Decides by what has been answered.

    Args:
        flow: The conditions of a plan.
        answers: What agents and tasks returned so far, by their names.
    """

    def __init__(self, flow: Flow, answers: dict[str, Any]) -> None:
        self._flow, self._answers = flow, answers
        self.decides, self.ahead_of = flow.decides, flow.ahead_of

    def choose(self, step: int, left: Mapping[int, Left]) -> Left | None:
        """Return why a step does not run, whose parents are done; `None` where it does."""
        found = self._flow.choose(step, self._answers, left)
        if found is not None and step in self.ahead_of:  # its answer may be there, and is thrown away
            self._answers.pop(self._flow.names[step], None)
        return found


def escalation_of(plan: Plan, step: int, answer: Answer) -> CallError | None:
    """Return why the next model of a cascade is to answer, by its condition alone; `None` where this answer will do."""
    agent = plan.agents[step]
    if agent.escalate is None:
        return None
    try:
        met = holds(condition_of(agent.escalate, agent.name, "escalate"), {ANSWER: plan.meaning_of(step, answer.text)})
    except AgentMagicError as error:
        return InvalidAnswer(f"its escalate cannot be decided: {error}", mendable=False)
    return Escalated(agent.escalate) if met else None


class PlanRequests:
    """Writes the requests of a plan's agents, and says what each may use.

    No token is shorter than a byte. That bounds a request before anybody has counted it, but about four times too high:
    where a budget has no room for so much, the provider is asked to count.

    Args:
        plan: What runs.
        policy: How; its caps decide whether anything is bounded at all.
        models: Per agent, the model it asks.
        facts: What the provider says of each model.
        prices: What tokens cost.
        bought: Answers that are there already and need no room; `None` has none.
        work_s: Per agent, expected seconds of work; `None` is unknown.
        texts: What agents answered before the run, text or value, by their names.
        cheaper: The model that requests ask which become cheaper, if there is one.
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
    ) -> None:
        self._plan, self._policy, self._prices, self._bought = plan, policy, prices, bought
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
        self._cheapest = "".join(cheaper)
        self._eased: dict[int, str | None] = {}  # the effort of those whose requests were made cheaper
        self._eased_now: set[int] = set()
        self._by_item: dict[int, list[str]] = {}  # what was answered so far where several items are asked for
        self._turn: dict[int, _Turn] = {}
        self._turns: dict[int, int] = {}  # how many turns a conversation has had
        uncapped = policy.budget_usd is policy.budget_tokens is policy.max_usd_per_min is None
        self._counting = None if uncapped else Counting()

    @property
    def holds(self) -> Mapping[int, tuple[Held, ...]]:
        """What steps hold while they run."""
        return self._plan.holds

    @property
    def saved(self) -> Container[int]:
        """The steps whose answers are written to files before they are passed on."""
        return self._plan.saves

    @property
    def falls_back(self) -> bool:
        """Whether any step has a model to fall back to."""
        return any(self._fallbacks.values())

    def max_turns(self, step: int) -> int:
        """Return the most requests for one answer of an agent."""
        return self._plan.agents[step].max_turns or self._policy.max_turns

    def write(self, step: int) -> Request:
        """Return the request of an agent whose parents are done.

        Raises:
            DeclarationError: Its prompt cannot be filled in.
            CancelledError: The user stopped it while its prompt was rendered.
        """
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
        if first.tools and self._policy.cache != "off" and not self._goes_by_batch(step):
            first = first._replace(cached_turns=True)
        if step in self._so_far:
            first = first._replace(messages=self._so_far[step], returned=self._returned.get(step, ()))
        elif not (first.tools and self._plan.agents[step].tools.functions):
            return first  # what a server does with its tools needs no second turn
        return _last(first) if self._turns.get(step, 0) + 1 >= self.max_turns(step) else first

    def fall_back(self, step: int) -> bool:
        """Have the agent ask its next fallback model. `False` where it has none, or its conversation has begun.

        A model cannot go on in a conversation of another one: it would lose its reasoning, silently.
        """
        if step in self._eased_now:
            self._eased_now.discard(step)
            return True
        left = self._fallbacks.get(step)
        if not left or step in self._so_far:
            return False
        self._ask_other(step, left.pop(0))
        return True

    def shares(self, step: int) -> bool:
        """Tell whether an agent's next request can still read the context that others had cached.

        A cache is that of a model. With another effort what stands before the messages is read all the same: a text
        that is a context, and not a picture or document. Source: the vendor's page on prompt caching.
        """
        context = self._plan.agents[step].context
        in_messages = context is not None and context in self._plan.documents
        return self.models[step] == self._planned[step] and not (step in self._eased and in_messages)

    def ease(self, step: int) -> bool:
        """Make the next request of an agent cheaper, as the policy allows. `False` where it is, or has begun."""
        if step in self._eased or step in self._so_far or self._goes_by_batch(step):
            return False
        allowed, model, before = self._policy.degrade or "", self.models[step], self._plan.agents[step].effort
        effort = "low" if "effort" in allowed and before not in {None, "low"} else before
        cheapest = self._cheapest if self._cheapest and self._is_cheaper(step) else model
        if (cheapest, effort) == (model, before):
            return False
        self._eased[step] = effort
        self._ask_other(step, cheapest)
        self._eased_now.add(step)
        return True

    def _is_cheaper(self, step: int) -> bool:
        """Tell whether the cheapest model is cheaper than the one that the agent asks."""
        usage = Usage(1000, output_tokens=1000)
        cheap, dear = (self._prices.of(model, usage).cost_usd for model in (self._cheapest, self.models[step]))
        return cheap is not None and dear is not None and cheap < dear

    def escalate(self, step: int) -> None:
        """Have the agent ask the next model of its cascade."""
        self._ask_other(step, self._cascades[step].pop(0))

    def _ask_other(self, step: int, model: str) -> None:
        self.models[step], self.limit_classes[step] = model, self._facts[model].limit_class
        self._written.pop(step, None)
        if self._counting is not None:
            self._counting.forget(step)

    def need(self, step: int) -> Need:
        """Return what the agent's next request may use. One that cannot be written needs nothing: it will fail."""
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
        keeps = bool(request.messages) and step not in self.checked and step not in self.asked_of
        keeps = keeps and self._policy.on_max_tokens != "fail"
        return Need(request.model, tokens, request.max_tokens, worst, shared_tokens=shared, least=least, keeps=keeps)

    def _goes_by_batch(self, step: int) -> bool:
        return self.batching is not None and step in self.batching.now

    def count(self, step: int) -> bool:
        """Have the input of an agent's next request counted. Tells whether to wait for that."""
        return self._counting is not None and self._counting.ask(step, self._written[step])

    def close(self, step: int) -> bool:
        """Make the agent's next request one after which no tool is called. Tells whether it was none yet."""
        request = self._written[step]
        self._written[step] = _last(request)
        return request != self._written[step]

    def to_count(self) -> list[tuple[int, Request]]:
        """Return the requests to have counted since the last call."""
        return [] if self._counting is None else self._counting.to_count()

    def counted(self, step: int, tokens: int | None) -> None:
        """Record how much input a request has; `None` where nobody says, and nobody is asked again."""
        if self._counting is not None:
            self._counting.counted(step, tokens)

    def used(self, step: int, usage: Usage) -> None:
        """Record how much input a request had. Where it was more than its bound, later ones may be so as well."""
        if self._counting is not None:
            self._counting.used(step, usage)

    def continue_turn(self, step: int, answer: Answer | None, reply: str = "") -> None:
        """Record what the agent's next request goes on from; `None` begins a new conversation."""
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
        """Tell whether an answer that goes on from calls says nothing: that happens, and asked once more it speaks."""
        return not answer.text.strip()

    def fault(self, step: int, answer: Answer) -> CallError | None:
        """Return what is wrong with an answer, by the type that its agent returns and by its check.

        Where its agent has a dearer model left, `Escalated` says why that is to answer.
        """
        found = self._fault(step, answer)
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
        """Return which of several items an answer lacks. Asked for them once more, what there is will do."""
        before = self._by_item.get(step, []) if step in self._so_far else []  # else it is a new conversation
        agent, good, fault = self._plan.agents[step], 0, _broken_off(answer)
        if fault is None:
            try:
                good, fault = taken_apart(agent, "".join([*before, answer.text]))
                self._by_item[step] = [*before, answer.text]
            except InvalidAnswer as error:
                fault = error
        if before and not good:  # nothing came of the second reply
            good = taken_apart(agent, "".join(before))[0]
        return None if before and good else fault

    def answered(self, step: int, text: str) -> None:
        """Record what an agent answered, which its children use."""
        if self._by_item:
            text = "".join(self._by_item.pop(step, (text,)))
        self._texts[self._plan.agents[step].name] = self._plan.meaning_of(step, text) if step in self.checked else text

    def calls(self, step: int, answer: Answer) -> Sequence[Wanted]:
        """Return the calls of the agent's tools that a response asks for."""
        agent = self._plan.agents[step]
        if answer.stop_reason not in TURNS or not isinstance(agent, Agent) or not agent.tools:
            return ()
        found = [self._wanted(step, agent, one) for one in calls_in(answer)]
        if found:
            self._turn[step] = _Turn(answer, len(found), {})
        return found

    def _wanted(self, step: int, agent: Agent, one: Mapping[str, Any]) -> Wanted:
        """Return a call, with what its tool says of when it may run."""
        id_, name = str(one.get("id", "")), str(one.get("name", ""))
        arguments = json.dumps(one.get("input", {}), ensure_ascii=True)
        tool = agent.tools.named(name)
        if tool is None:
            return Wanted(id_, name, arguments)
        own = {held.name for held in self.holds.get(step, ())}  # what the agent holds its tools may use
        holds = tuple(held for held in held_by(tool.uses, tool.writes) if held.name not in own)
        return Wanted(id_, name, arguments, tool.alone, tool.ask, holds, tool.source_sha)

    def called(self, call: Call, result: Result) -> None:
        """Record what came of a call. After the last of a turn, the next request goes on from all of them."""
        step = call.step
        if step in self.tasks:
            if result.status == "succeeded":
                self._texts[self._plan.agents[step].name] = result.value
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
        """Append what calls returned to the conversation. What a request cannot hold is left out, and told."""
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
        """Return the most a request can use; and the most if its input is as short as its bytes allow.

        The latter is `None` where the request was counted.
        """
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
        """Return the tokens of a request's pictures and PDFs, likely and at most."""
        return tokens_of(request.files, self._facts[request.model].token_rule) if request.files else (0, 0)

    def _shared(self, step: int, request: Request) -> tuple[int, int]:
        """Return the tokens that a request asks to have cached for others, estimated and at most."""
        if not request.cached:
            return 0, 0
        return context_tokens(request.context or self._plan.context_of(step), self._facts[request.model].token_rule)

    def _cost(self, step: int, request: Request, size: int, *, by_batch: bool) -> Worst:
        """Return what a request uses that has this much input and fills its answer."""
        written = min(size, self._shared(step, request)[1])
        long = written if request.ttl == "1h" else 0
        if request.cached_turns:
            written = size
        usage = Usage(
            size - written,
            cache_write_tokens=written,
            output_tokens=request.max_tokens,
            cache_write_1h_tokens=long,
            searches=self._plan.agents[step].tools.most_searches if request.tools else 0,
        )
        price = self._prices.of(request.model, usage)
        return Worst((of_batch(price, usage) if by_batch else price).cost_usd, size + request.max_tokens)
