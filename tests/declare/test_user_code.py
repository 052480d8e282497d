"""Code of the user's in prompts and values: it cannot end the kernel, and Stop stops it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

import pytest

from agent_magic import Agent
from agent_magic.declare import Plan, plan_to_dict
from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.values import items_now
from agent_magic.errors import AgentMagicError, DeclarationError

LEAVING = {"exit": SystemExit(1), "interrupt": KeyboardInterrupt("mine"), "cancelled": asyncio.CancelledError()}
every_way_to_leave = pytest.mark.parametrize("error", LEAVING.values(), ids=LEAVING)


class Leaves(dict):
    """A value whose methods all raise."""

    def __init__(self, error):
        super().__init__(a=1)
        self.error = error

    def leave(self, *_):
        """Raise."""
        raise self.error

    __str__ = __repr__ = __iter__ = items = __len__ = leave


WAYS = {
    "a function": "{{ value.leave() }}",
    "a text": "{{ value }}",
    "a text in a template": "{% if 1 %}{{ value }}{% endif %}",
    "a filter": "{{ value | tojson }}",
    "a loop": "{% for one in value %}{% endfor %}",
}


@every_way_to_leave
@pytest.mark.parametrize("prompt", WAYS.values(), ids=WAYS)
def test_what_would_end_the_kernel_is_a_declaration_error(prompt, error):
    """Safety 1: whatever a value raises while a prompt is rendered, the error names the agent and says what it was."""
    plan = Plan([Agent("speaker", prompt)], {"value": Leaves(error)})
    for render in (plan.check_prompts, lambda: plan.prompt("speaker", {})):
        with pytest.raises(DeclarationError, match=r"^The prompt of agent 'speaker' cannot be rendered: ") as caught:
            render()
        assert type(error).__name__ in str(caught.value)


@every_way_to_leave
def test_contexts_items_and_plans_as_data_are_safe_too(error):
    """The same holds where a context is written, a value's items are read, and a plan becomes JSON."""
    value = Leaves(error)
    plan = Plan([Agent("a", "hello", context="value")], {"value": value})
    for render in (lambda: plan.context_of(0), plan.check_prompts):
        with pytest.raises(DeclarationError, match=type(error).__name__):
            render()
    assert {"value": "<Leaves>"} == plan_to_dict(plan)["values"]
    with pytest.raises(DeclarationError, match=f"'a' cannot be run for each of 'rows'.*{type(error).__name__}"):
        Plan([Agent("a", "{{ item }}", each="rows")], {"rows": value})
    assert items_now(value) is None


def test_the_place_in_the_prompt_is_said():
    """The message has the line and the expression: a prompt may have hundreds."""
    with pytest.raises(DeclarationError, match=r"'a'.*line 3, \{\{ stop\(\) \}\}: SystemExit: 1"):
        Plan(
            [Agent("a", "one\n{{ x }}{{ x }}\nsay {{ stop() }}")], {"x": 1, "stop": lambda: sys.exit(1)}
        ).check_prompts()


def press(*_):
    """Press Stop."""
    signal.raise_signal(signal.SIGINT)


class Presses:
    """A value during whose text somebody presses Stop. It goes on for ever, and swallows the interrupt if asked to."""

    def __init__(self, *, swallows=False):
        self.swallows = swallows

    def __str__(self):
        try:
            press()
        except KeyboardInterrupt:
            if self.swallows:
                return "went on"
            raise
        pytest.fail("the interrupt did not stop it")


@pytest.fixture
def presses(monkeypatch):
    """Let the handler of SIGINT be one that only counts, as a notebook's is; return the count."""
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("pressed"))
    yield heard
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("swallows", [False, True], ids=["raised", "swallowed"])
@pytest.mark.parametrize("prompt", ["{{ value }}", "{% if 1 %}{{ value }}{% endif %}"], ids=["text", "template"])
def test_stop_ends_rendering(presses, prompt, swallows):
    """Safety 3: Stop raises in the code that runs; a task is cancelled by it, so that its loop goes on."""
    plan = Plan([Agent("a", prompt)], {"value": Presses(swallows=swallows)})

    async def main():
        with pytest.raises(asyncio.CancelledError):
            plan.check_prompts()

    with pytest.raises(KeyboardInterrupt):
        plan.check_prompts()
    asyncio.run(main())
    assert ["pressed"] * 2 == presses


def test_stop_ends_a_loop_of_the_template_itself(presses):
    """A loop that would take hours ends at the interrupt, though none of its code is the user's."""
    endless = (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% if press() %}{% endif %}{% endfor %}{% endfor %}"
    )
    with pytest.raises(KeyboardInterrupt):
        Plan([Agent("a", endless)], {"press": press}).check_prompts()
    assert ["pressed"] == presses


def test_where_pythons_own_handler_is_in_force_its_interrupt_stays_one():
    """In a script Ctrl-C is a `KeyboardInterrupt`, in a task too."""

    async def main():
        run_user_code(press, lambda _: pytest.fail("an interrupt is no error of a value"))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(main())
        assert signal.default_int_handler is signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_stop_at_once_does_not_leave_the_task(presses):
    """It may come while the first is being handled: a `KeyboardInterrupt` then would end the kernel's loop."""
    events = []

    def second(frame, event, _):
        if frame.f_code is run_user_code.__code__:
            events.append(event)
            if events[-2:] == ["exception", "line"]:
                press()
        return second

    async def main():
        before = sys.gettrace()
        sys.settrace(second)
        try:
            with pytest.raises(asyncio.CancelledError):
                run_user_code(press, lambda _: pytest.fail("an interrupt is no error of a value"))
        finally:
            sys.settrace(before)

    asyncio.run(main())
    assert 2 <= len(presses)


def test_the_handler_is_back_afterwards(presses):
    """Whatever becomes of the code, the handler is the one from before, or the one that the code has set."""
    before, own = signal.getsignal(signal.SIGINT), signal.SIG_IGN
    assert 3 == run_user_code(lambda: 3, failed)
    with pytest.raises(DeclarationError):
        run_user_code(sys.exit, failed)
    assert before is signal.getsignal(signal.SIGINT)
    run_user_code(lambda: signal.signal(signal.SIGINT, own), failed)
    assert own is signal.getsignal(signal.SIGINT)


def failed(error):
    """Make an error of ours of one of the user's."""
    return DeclarationError(repr(error))


def test_the_handler_before_is_not_written_out():
    """A handler of SIGINT is put aside and put back unread: that of `asyncio.run` names a task, which takes long."""

    class Handler:
        """A handler that nobody may write out."""

        def __call__(self, *_):
            """Do nothing."""

        def __repr__(self):
            raise AssertionError("the handler was written out")

    handler, before = Handler(), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)
    try:
        assert run_user_code(lambda: 1, lambda error: AgentMagicError(str(error))) == 1
    finally:
        with contextlib.suppress(AssertionError):  # `signal.signal` itself does write it out
            signal.signal(signal.SIGINT, before)
    assert before is signal.getsignal(signal.SIGINT)
