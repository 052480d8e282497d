"""Calls of a run's functions: tools that responses ask for, and tasks."""

from __future__ import annotations

import asyncio
import os
import platform
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.declare.answers.reading import plain
from agent_magic.declare.flow import MISSING
from agent_magic.declare.step import digest
from agent_magic.declare.task import Task
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values import RaisedError, as_json, pack, single_use_in, unpack, value_text
from agent_magic.engine.calls import Result, Verdict
from agent_magic.errors import AgentMagicError, LedgerError, Unreachable
from agent_magic.live.functions import Ran, is_coroutine, run_function, tool_result
from agent_magic.live.people import Question, ask
from agent_magic.live.saving import write_answer
from agent_magic.record.events import CallEnded, new_tuple
from agent_magic.record.ledger.base import IN_DOUBT, Busy, CallKey, Doubt
from agent_magic.record.results import Returned
from agent_magic.record.secret_scan import masked, secrets_of
from agent_magic.record.task_inputs import UNKNOWN, Taken, variables_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.tool import Tool
    from agent_magic.engine.calls import Call
    from agent_magic.engine.policy import Policy
    from agent_magic.live.answer_cache import AnswerCache, Earlier
    from agent_magic.live.people import Asker
    from agent_magic.providers.base import Provider
    from agent_magic.record.ledger.base import Journal
    from agent_magic.record.results import RunRecord

LOOK_S = 0.1
"""Polling interval while another process locks the ledger."""
MOST_TEXT = 100_000
"""Characters of a task's result kept as text."""


class Caller:
    """Calls the functions of a run's steps; without a `cache` nothing is kept."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        record: RunRecord,
        policy: Policy,
        provider: Provider,
        *,
        cache: AnswerCache | None,
        fresh: bool,
        earlier: Earlier | None,
        frame_of: Callable[[RunRecord, str], Any] | None,
        asker: Asker | None,
        say: Callable[[str], object],
    ) -> None:
        self._record, self._policy, self._cache, self._fresh = record, policy, cache, fresh
        self._provider, self._earlier, self._frame_of, self._asker = provider, earlier, frame_of, asker
        self._taken = Taken(record)
        self._known: tuple[int, Mapping[str, str]] = -1, {}
        self._task_keys: dict[int, str] = {}
        self._alike: Counter[str] = Counter()
        self._say, self._repeated = say, set[str]()
        self.journal: Journal | None = None

    async def call(self, call: Call) -> Result:
        try:
            return await self._call(call)
        except LedgerError as error:  # what cannot be written down is not done
            return _failed(str(error), type(error).__name__)._replace(ends=True)

    async def _call(self, call: Call) -> Result:
        step = self._record.plan.agents[call.step]
        if isinstance(step, Task):
            takes = self._taken.of(call.step)  # before it is called, which may change its arguments
            earlier = None if self._earlier is None else self._earlier.done(self._record, call.step, takes)
            result = await self._task(step, call, takes, earlier)
            return result._replace(takes=written(takes)) if takes else result
        if not call.wanted.id:
            return await self._save(call.step)
        tool = step.tools.named(call.wanted.tool)
        if tool is None:
            names = ", ".join(one.name for one in step.tools) or "none"
            return _failed(f"There is no tool {call.wanted.tool!r}. Tools: {names}.", "UnknownTool")
        try:
            arguments = tool.arguments(call.wanted.arguments)
        except AgentMagicError as error:
            return _failed(str(error), type(error).__name__)
        key = self.key_of(call, tool)
        if key is not None and not (key.pure or key.repeats):
            self._tell_repeat(key)
        kept = await self._begin(call, key, fresh=self._fresh)
        return await self._run_tool(call, tool, arguments, key) if kept is None else kept

    def _tell_repeat(self, key: CallKey) -> None:
        made = None if self.journal is None or key.tool in self._repeated else self.journal.made_by(key)
        if made is not None:
            self._repeated.add(key.tool)
            self._say(
                f"{key.tool} is called again: run {made}, which is complete, called it for the same answers. "
                "@am.tool(pure=True) keeps results."
            )

    def _tell_cut(self, step: int, doubt: Doubt) -> None:
        task = self._record.plan.agents[step]
        name = task.name if task.part is None else task.part.group
        if isinstance(task, Task) and name not in self._repeated:
            self._repeated.add(name)
            self._say(
                f"{name} runs again: a run that was cut had begun it at {_since(doubt)}, and it may have finished."
            )

    async def _run_tool(self, call: Call, tool: Tool, arguments: Mapping[str, Any], key: CallKey | None) -> Result:
        shown = self._record.results[call.step].call(call.number)
        if tool.function is None:
            return _failed(f"The function of {tool.name!r} is not here: it was read from a record.", "DeclarationError")
        where: Any = {"main": tool.main, "process": tool.process, "remote": self._provider.remote}
        where |= {
            "timeout_s": tool.timeout_s,
            "prints": _masking(shown.printed),
            "late": partial(self._late, call, key),
        }
        ran = Ran()
        for _ in range(self._policy.max_attempts):
            ran = await run_function(tool.function, arguments, **where)
            if ran.finished or not isinstance(ran.error, Unreachable) or self.journal is None or key is None:
                break
            # Its worker was lost. The ledger's entry of the call decides, as after a kill.
            if (settled := await self._begin(call, key, fresh=False)) is not None:
                return settled
        secrets = self._named_secrets() if ran.error is None else secrets_of(os.environ)
        told = tool_result(ran, secrets)
        if told.is_error:
            return _broken(ran, told.content, shown.prints, secrets)
        return Result(
            "succeeded",
            told.content,
            prints=shown.prints,
            blocks=bool(told.files),
            artifacts=ran.artifacts,
            files=told.files,
            worker=ran.worker,
        )

    def _named_secrets(self) -> Mapping[str, str]:
        if self._known[0] != len(os.environ):
            self._known = len(os.environ), secrets_of(os.environ, named=True)
        return self._known[1]

    def _late(self, call: Call, key: CallKey | None, ran: Ran) -> None:
        """Record the result of a call that its run no longer awaits."""
        if self.journal is None or key is None or is_coroutine(ran.value):
            return
        shown = self._record.results[call.step].call(call.number)
        secrets = self._named_secrets() if ran.error is None else secrets_of(os.environ)
        told = tool_result(ran, secrets)
        if told.files:  # their bytes are stored with the events of a run, and that is over
            return
        result = Result("succeeded", told.content, prints=shown.prints, artifacts=ran.artifacts)
        if told.is_error:
            result = _broken(ran, told.content, shown.prints, secrets)
        kept = (result.status, result.text, result.error, result.kind, "live", None, result.prints, result.trace)
        end = CallEnded(shown.started_s, call.step, call.number, *kept, artifacts=result.artifacts)
        self.journal.end_late(key, end)

    async def _save(self, step: int) -> Result:
        plan, text = self._record.plan, self._record.results[step].text
        if plan.agents[step].returns is not None:
            text = as_json(plan.meaning_of(step, text), indent=2)
        try:
            path, data = plan.saves[step], f"{text.rstrip()}\n".encode()
            place = str(Path.cwd() / path)
            known = None if self.journal is None else self.journal.saved(place)
            named = "{{" not in (plan.agents[step].save or "")
            found = await asyncio.to_thread(write_answer, path, data, known, named=named)
        except (AgentMagicError, OSError) as error:
            why = str(error) if isinstance(error, AgentMagicError) else reason_of(error)
            return _failed(f"The answer was not saved: {why}", type(error).__name__)
        if self.journal is not None and found.is_answer:
            self.journal.keep_saved(place, found.file.sha256)
        return Result("succeeded", path, artifacts=(found.file,), prints=found.note)

    async def _task(self, task: Task, call: Call, takes: Mapping[str, str], earlier: Result | None) -> Result:
        if earlier is not None:
            if not task.pure:
                await self._begin(call, self._task_key(task, call.step, takes), fresh=True)
            return earlier
        shown = self._record.results[call.step].call(call.number)
        try:
            arguments = task.checked(self.arguments(call.step))
        except AgentMagicError as error:
            return _failed(str(error), type(error).__name__)
        if task.pure:
            key = pure_key(task.name, _code_of(task.function, task.source_sha), pack(arguments))
        else:
            key = self._task_key(task, call.step, takes)
        again = self._earlier is not None and task.name in self._earlier.again
        kept = await self._begin(call, key, fresh=self._fresh or again)
        if kept is not None and kept.packed is not None and kept.status == "succeeded":
            return kept._replace(value=unpack(kept.packed))
        if kept is not None:  # only its text is known, or it failed
            await self._begin(call, key, fresh=True)
        ran = await run_function(
            task.function,
            arguments,
            main=task.main,
            process=task.process,
            remote=self._provider.remote,
            timeout_s=task.timeout_s,
            prints=_masking(shown.printed),
        )
        if ran.error is not None:
            secrets = secrets_of(os.environ)
            told = tool_result(ran, secrets).content
            return _broken(ran, told, shown.prints, secrets)._replace(attempts=1 + task.retries)
        text, why = _text_of(task.name, ran.value)
        if why:
            return _failed(why, "RenderError")
        told = ("succeeded", _cut(text), None, None, "live", ran.value, pack(ran.value), shown.prints, "", False, 1)
        return new_tuple(Result, (*told, False, "", ran.artifacts, (), ran.worker))

    def arguments(self, step: int) -> dict[str, Any]:
        plan = self._record.plan
        found = {name: self._argument(plan, step, name) for name in plan.takes(step)}
        return {name: value for name, value in found.items() if value is not MISSING}

    def _argument(self, plan: Plan, step: int, name: str) -> Any:
        found = plan.source_of(step, name)
        if isinstance(found, str):
            result = self._record[found]
            if plan.agents[step].race and result.status != "succeeded":
                return result.text if result.status == "capped" else MISSING
            return MISSING if result.is_left_out else result.value
        if found is None and name in plan.values and name not in plan.groups:
            return plan.values[name]
        if found is None:
            return plain(plan.meaning(step, name, Returned(self._record)))
        if self._frame_of is not None:
            return self._frame_of(self._record, name)
        return [one.value for one in map(self._record.__getitem__, found) if not one.is_left_out]

    # the ledger's entry of a call

    def _task_key(self, task: Task, step: int, takes: Mapping[str, str]) -> CallKey | None:
        # The key is not its position: after an edit another row may be there. Equal tasks are numbered in
        # starting order.
        if task.race or not task.source_sha or (task.part is not None and task.part.asked):
            return None
        if any(takes[name] == UNKNOWN for name in self._record.plan.takes(step)):
            return None
        if step not in self._task_keys:
            name = task.name if task.part is None else task.part.group
            same = digest(["task", self._record.plan.name, name, task.source_sha, *sorted(takes.items())])
            self._task_keys[step] = digest([same, self._alike[same]])
            self._alike[same] += 1
        return CallKey(self._task_keys[step], task.name, repeats=True, shared=False)

    def key_of(self, call: Call, tool: Tool) -> CallKey | None:
        if tool.pure:
            return pure_key(tool.name, _code_of(tool.function, tool.source_sha), call.wanted.arguments)
        if self._cache is None:
            return None
        asked = self._record.results[call.step].attempts[call.turn - 1].request
        place = [*self._cache.key(call.step, asked), call.wanted.id, tool.name]
        return CallKey(digest(place), tool.name, repeats=tool.safe, arguments=call.wanted.arguments)

    def agreed(self, call: Call) -> Verdict | None:
        """Return a person's verdict on a call that has a result already."""
        tool = self._record.plan.agents[call.step].tools.named(call.wanted.tool)
        key = None if tool is None else self.key_of(call, tool)
        if key is None or self.journal is None or self._fresh:
            return None
        done = self.journal.done_call(key)
        return None if done is None else Verdict(approved=True, text=done.arguments)

    async def _begin(self, call: Call, key: CallKey | None, *, fresh: bool) -> Result | None:
        """Return the stored result, or record that the call begins and return None."""
        journal = self.journal
        if journal is None or key is None:
            return None
        while True:
            known = journal.begin_call(call.step, call.number, key, fresh=fresh)
            if known is None:
                return None
            if isinstance(known, Busy):
                await asyncio.sleep(LOOK_S)
            elif isinstance(known, Doubt) and key.repeats:
                self._tell_cut(call.step, known)
                fresh = True
            elif isinstance(known, Doubt):
                settled = await self._settle(call, known)
                if settled is not None:
                    return settled
                fresh = True
            else:
                return _result_of(known)

    async def _settle(self, call: Call, doubt: Doubt) -> Result | None:
        """Decide about a call that may have happened; None: call again."""
        tool, way = call.wanted.tool, self._policy.on_doubt
        same = doubt.arguments in {None, call.wanted.arguments}
        given = "the same" if same else "other arguments"
        said = f"{tool} was called with {given} at {_since(doubt)}, and may have finished"
        if way == "again":
            return None
        if way == "error":
            return _failed(f"Not called: {said}.", IN_DOUBT)
        if self._asker is not None:
            name = self._record.results[call.step].name
            question = Question("doubt", name, tool, call.wanted.arguments, self._policy.ask_s)
            verdict = await ask(self._asker, self._record.plan, question)
            if verdict.approved:
                return None if verdict.text is None else Result("succeeded", verdict.text)
            return _failed(f"Not called: {said}. {verdict.why}".strip(), IN_DOUBT)
        ways = "Policy(on_doubt='again') calls it once more, on_doubt='error' tells the model that it failed."
        why = f"{IN_DOUBT}: {said}. It was not repeated. {ways}"
        return Result("failed", why, why, IN_DOUBT, ends=True)


def _text_of(name: str, value: Any) -> tuple[str, str]:
    kind = type(value).__name__
    try:
        once = run_user_code(lambda: single_use_in(value), lambda error: RaisedError(reason_of(error)))
        if once is not None:
            what = type(once).__name__
            return (
                "",
                f"{name!r} returned a {what}, which can be read only once, by one of many: return list(...) of it.",
            )
        return value_text(name, value), ""
    except RaisedError as error:
        return "", f"The task ran, but its result cannot be written as text: {error}."
    except AgentMagicError:  # only a prompt needs a text of it
        return f"<{kind}>", ""


def _code_of(function: object, sha: str) -> str:
    found = variables_of(function) if sha else None
    return digest([sha, *sorted(found.items())]) if found else sha


def pure_key(name: str, sha: str, arguments: str | None) -> CallKey | None:
    if not sha or arguments is None:
        return None
    return CallKey(digest([sha, arguments, platform.python_version(), version("pandas")]), name, pure=True)


def _since(doubt: Doubt) -> str:
    return f"{datetime.fromtimestamp(doubt.began_at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _result_of(end: CallEnded) -> Result:
    return Result(
        end.status,
        end.result,
        end.error,
        end.kind,
        end.source,
        packed=end.value,
        prints=end.prints,
        trace=end.trace,
        blocks=end.blocks,
        artifacts=end.artifacts,
        files=end.files,
    )


def _masking(tell: Callable[[str], object]) -> Callable[[str], None]:
    secrets: dict[str, str] | None = None

    def told(text: str) -> None:
        nonlocal secrets
        secrets = secrets_of(os.environ) if secrets is None else secrets
        tell(masked(text, secrets))

    return told


def _broken(ran: Ran, told: str, prints: str, secrets: Mapping[str, str]) -> Result:
    kind = "DeclarationError" if ran.error is None else type(ran.error).__name__
    trace = masked(ran.trace, secrets)
    failure = Result("failed", told, " ".join(told.split()), kind, prints=prints, trace=trace)
    return failure._replace(artifacts=ran.artifacts, worker=ran.worker)


def _failed(why: str, kind: str) -> Result:
    why = masked(why, secrets_of(os.environ))
    return Result("failed", _cut(why), " ".join(why.split()), kind)


def _cut(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n[{len(text) - MOST_TEXT:,} more characters were left out]"
