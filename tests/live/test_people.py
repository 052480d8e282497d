"""A person's nod: asked for over real HTTP, bound to what was shown, kept in the record."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import agent_magic as am
from agent_magic import Agent as Declared
from agent_magic import Desk, Question
from agent_magic.declare import Plan as DeclaredPlan
from agent_magic.errors import Rejected
from agent_magic.live.people import ask
from agent_magic.simulator import Simulator, start

CALL = 'Write. [[tool:send_mail {"to": "a@x.org", "text": "Hi"}]]'
YES, NO = am.Verdict(approved=True), am.Verdict(approved=False, why="not today")


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


class Mail:
    """A tool that a person has to agree to.

    Attributes:
        sent: The arguments of its calls.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

        @am.tool(ask=True)
        def send_mail(to: str, text: str) -> str:
            """Send a mail.

            Args:
                to: The address.
                text: What it says.
            """
            self.sent.append((to, text))
            return f"sent to {to}"

        self.tool = send_mail


def agent(mail: Mail, prompt: str = CALL, **more: Any) -> am.Plan:
    """Make a plan of one agent with the tool."""
    return am.Plan([am.Agent("a", prompt, tools=[mail.tool], **more)])


def client(server: Simulator) -> am.Claude:
    """Connect to the mock server."""
    return am.Claude(base_url=server.url, api_key="any")


class Person:
    """Answers every question the same.

    Attributes:
        asked: The questions.
    """

    def __init__(self, verdict: am.Verdict, think_s: float = 0.0) -> None:
        self.asked: list[Question] = []
        self._verdict, self._think_s = verdict, think_s

    async def ask(self, question: Question) -> am.Verdict:
        """Answer after a while."""
        self.asked.append(question)
        await asyncio.sleep(self._think_s)
        return self._verdict


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something is so: it comes over real HTTP."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_what_is_shown_is_what_runs(server: Simulator) -> None:
    """The question has the exact arguments; agreed to, the function is called with them."""
    mail, person = Mail(), Person(YES)
    run = asyncio.run(agent(mail).run(client=client(server), ask=person.ask))
    (question,) = person.asked
    assert ("call", "a", "send_mail", 600.0) == (question.kind, question.agent, question.tool, question.seconds)
    assert [("a@x.org", "Hi")] == mail.sent
    assert json.loads(question.text) == {"to": "a@x.org", "text": "Hi"} == json.loads(run["a"].calls[0].arguments)


@pytest.mark.parametrize(
    ("said", "sent", "why"),
    [
        (True, 1, ""),
        (False, 0, ""),
        (YES, 1, ""),
        (NO, 0, "not today"),
        ("ok", 0, "ask= returned 'ok': it must return"),
    ],
)
def test_a_plain_function_is_asked_too(server: Simulator, said: Any, sent: int, why: str) -> None:
    """It may say yes or no; what is neither sends nothing, and the call says why."""
    mail = Mail()
    run = asyncio.run(agent(mail).run(client=client(server), ask=lambda _question: said))
    (call,) = run["a"].calls
    assert sent == len(mail.sent)
    assert why in str(call.error)


def test_changed_arguments_run_and_are_kept(server: Simulator) -> None:
    """The call has the changed arguments; what the model had asked for stays in its answer."""
    mail, changed = Mail(), '{"to": "b@x.org", "text": "Hi"}'
    run = asyncio.run(agent(mail).run(client=client(server), ask=Person(am.Verdict(True, changed)).ask))
    assert [("b@x.org", "Hi")] == mail.sent
    assert changed == run["a"].calls[0].arguments
    first = run["a"].attempts[0].answer
    assert first is not None
    assert "a@x.org" in str(first)


def unplugged(provider: Any) -> list[bool]:
    """Have a provider fail after the turn that asks for a call, as if the kernel had been killed there.

    Returns:
        Whether it still does.
    """
    send, pulled = provider.send, [True]

    async def cut(request: Any, stream: Any) -> Any:
        if request.messages and pulled[0]:
            raise Rejected("the plug was pulled", status=400)
        return await send(request, stream)

    provider.send = cut
    return pulled


def test_a_call_that_was_changed_and_done_before_a_kill_shows_what_was_done(server: Simulator) -> None:
    """The next run asks nobody, calls nothing, and shows the changed arguments and not the model's."""
    mail, changed, ledger = Mail(), '{"to": "b@x.org", "text": "Hi"}', am.Ledger(reuse_simulated=True)
    plug: Any = client(server)
    pulled = unplugged(plug)
    first = asyncio.run(agent(mail).run(client=plug, ledger=ledger, ask=Person(am.Verdict(True, changed)).ask))
    assert ("failed", changed) == (first["a"].status, first["a"].calls[0].arguments)
    pulled[0], nobody = False, Person(NO)
    second = asyncio.run(agent(mail).run(client=plug, ledger=ledger, ask=nobody.ask))
    assert ([], [("b@x.org", "Hi")]) == (nobody.asked, mail.sent)
    assert ("ledger", changed) == (second["a"].calls[0].source, second["a"].calls[0].arguments)
    assert second.ok
    ledger.close()


@pytest.mark.parametrize("changed", ["no JSON", "[1]", '{"to": 1}', '{"to": "x", "text": "y", "more": 1}'])
def test_a_change_that_does_not_fit_runs_nothing(server: Simulator, changed: str) -> None:
    """A changed text that the function cannot take denies the call and says what is wrong with it."""
    mail = Mail()
    run = asyncio.run(agent(mail).run(client=client(server), ask=Person(am.Verdict(True, changed)).ask))
    assert ([], "denied") == (mail.sent, run["a"].calls[0].status)
    assert "the changed text cannot be used" in str(run["a"].calls[0].error)


def test_a_denied_call_goes_back_to_the_model(server: Simulator) -> None:
    """Nothing runs, the model is told the reason, and the agent goes on."""
    mail = Mail()
    run = asyncio.run(agent(mail).run(client=client(server), ask=Person(NO).ask))
    assert ([], "denied", "Denied: not today") == (mail.sent, run["a"].calls[0].status, run["a"].calls[0].error)
    assert "not today" in str(run["a"].attempts[1].request.messages)
    assert run.ok


def test_nobody_is_there(server: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody can be asked it is denied at once, and a note says who, what, and what to do."""
    mail = Mail()
    run = asyncio.run(agent(mail).run(client=client(server)))
    assert ([], "denied") == (mail.sent, run["a"].calls[0].status)
    assert "Denied, since nobody could be asked: a (send_mail). Run it in" in caplog.text
    assert "desk = am.Desk(plan), plan.run(ask=desk.ask), desk.approve(...)." in caplog.text


def test_nobody_answers_in_time(server: Simulator, caplog: pytest.LogCaptureFixture) -> None:
    """After the time limit it is denied, and the note says what waits longer."""
    run = asyncio.run(agent(Mail()).run(am.Policy(ask_s=0.05), client=client(server), ask=Person(YES, 60.0).ask))
    assert "denied" == run["a"].calls[0].status
    assert "since nobody answered in time: a (send_mail). Policy(ask_s=...)" in caplog.text


def test_a_persons_time_is_queued_with_its_reason(server: Simulator) -> None:
    """The wait is no work: `queued_s` has it, by `person`, and the parts add up."""
    run = asyncio.run(agent(Mail()).run(client=client(server), ask=Person(YES, 0.2).ask))
    row = run.agents.iloc[0]
    assert row["queued_s"] >= 0.2
    waited = [one for one in run["a"].away() if one.reason == "person"]
    assert sum((one.end_s or 0.0) - one.start_s for one in waited) >= 0.2


def test_a_forecast_leaves_a_persons_time_out_and_says_so(server: Simulator) -> None:
    """A run in which a person thought for a while is forecast without that time."""
    run = asyncio.run(agent(Mail()).run(client=client(server), ask=Person(YES, 0.5).ask))
    forecast = run.forecast(am.Policy(concurrency=1))
    assert (run.totals.wall_s or 0.0) >= 0.5 > (forecast.totals.wall_s or 0.0)
    note = run.whatif(concurrency=1).iloc[-1]
    assert "the time in which a person was asked is left out" in " ".join(map(str, note))


def test_an_answer_waits_for_a_nod(server: Simulator) -> None:
    """`ask=True` on an agent: nobody uses its answer before somebody agreed; a changed text is what others use."""
    plan = am.Plan([am.Agent("a", "Say it. [[tokens:5]]", ask=True), am.Agent("b", "Echo {{ a }} [[tokens:5]]")])
    person = Person(am.Verdict(True, "mended"))
    run = asyncio.run(plan.run(client=client(server), ask=person.ask))
    assert ["answer"] == [one.kind for one in person.asked]
    assert ("mended", True) == (run["a"].text, "Echo mended" in run["b"].attempts[0].request.prompt)
    denied = asyncio.run(plan.run(client=client(server), ask=Person(NO).ask))
    assert ["failed", "skipped"] == list(denied.agents["status"])


def test_a_stop_closes_the_questions(server: Simulator) -> None:
    """A nod after the run was stopped does nothing: the question is gone, the function is not called."""
    mail, plan = Mail(), None

    async def work() -> tuple[am.Run, bool, str]:
        nonlocal plan
        plan = agent(mail)
        desk = Desk(plan)
        driver = am.start(plan, client=client(server), ask=desk.ask)
        driving = asyncio.create_task(driver.drive())
        await until(lambda: bool(desk.open))
        (number,) = desk.open
        driver.stop()
        gone = desk.answer(number, YES)
        await driving
        return am.Run(driver.record), not desk.open, gone

    run, is_empty, gone = asyncio.run(work())
    assert ([], ["cancelled"], True, "") == (mail.sent, list(run.agents["status"]), is_empty, gone)


QUESTION = Question("call", "a", "send_mail", '{"to": "x", "text": "y"}', 5.0)


def test_the_first_answer_counts() -> None:
    """Answered from many threads at once, one verdict counts, and the question is closed for all."""
    desk = Desk(agent(Mail()))

    async def work() -> am.Verdict:
        asking = asyncio.create_task(desk.ask(QUESTION))
        await asyncio.sleep(0)
        (number,) = desk.open
        verdicts = [am.Verdict(approved=bool(one % 2), why=str(one)) for one in range(8)]
        threads = [threading.Thread(target=desk.answer, args=(number, one)) for one in verdicts]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert {} == desk.open
        assert "" == desk.answer(number, YES)
        return await asking

    assert asyncio.run(work()).why in set("01234567")


def test_a_change_of_no_use_leaves_the_question_open() -> None:
    """Whoever changes a text is told what is wrong with it, and can try again."""
    desk = Desk(agent(Mail()))

    async def work() -> am.Verdict:
        asking = asyncio.create_task(desk.ask(QUESTION))
        await asyncio.sleep(0)
        (number,) = desk.open
        assert "to" in desk.answer(number, am.Verdict(True, "{}"))
        assert [number] == list(desk.open)
        assert "" == desk.answer(number, am.Verdict(True, '{"to": "z", "text": ""}'))
        return await asking

    assert '{"to": "z", "text": ""}' == asyncio.run(work()).text


def test_a_changed_answer_fits_its_type() -> None:
    """An answer with a type takes only a changed text that is of this type."""
    plan = DeclaredPlan([Declared("a", "x", ask=True, returns=Literal["good", "bad"])])
    question = Question("answer", "a", "", '{"value": "good"}', 5.0)
    bad = asyncio.run(ask(Person(am.Verdict(True, '{"value": "so"}')).ask, plan, question))
    good = asyncio.run(ask(Person(am.Verdict(True, '{"value": "bad"}')).ask, plan, question))
    assert (False, True) == (bad.approved, good.approved)


def test_a_time_out_of_the_asker_is_its_own() -> None:
    """Only the time limit of the question is called one."""

    async def slow(_: Question) -> am.Verdict:
        raise TimeoutError("the chat")

    with pytest.raises(TimeoutError, match="the chat"):
        asyncio.run(ask(slow, agent(Mail()), QUESTION))


def waits(server: Simulator, say: Callable[[am.Desk], None], prompt: str = CALL, **more: Any) -> tuple[Mail, am.Run]:
    """Run on a desk, and say this from another thread as soon as a question is open."""
    mail = Mail()

    async def work() -> am.Run:
        plan = agent(mail, prompt, **more)
        desk = am.Desk(plan)
        running = asyncio.create_task(plan.run(client=client(server), ask=desk.ask))
        await until(lambda: bool(desk.pending))
        await asyncio.to_thread(say, desk)
        return await running

    return mail, asyncio.run(work())


def test_a_program_reads_what_is_asked_and_agrees(server: Simulator) -> None:
    """A pending question has its agent, tool, exact arguments, and the limit of the policy; a nod calls with them."""
    seen: list[Any] = []

    def say(desk: am.Desk) -> None:
        (one,) = desk.pending
        seen.append(one)
        desk.approve(one.number)

    mail, run = waits(server, say)
    (one,) = seen
    assert ("a", "send_mail", "call") == (one.agent, one.tool, one.kind)
    assert {"to": "a@x.org", "text": "Hi"} == json.loads(one.text)
    assert am.Policy().ask_s == (one.until - one.since).total_seconds()
    assert ([("a@x.org", "Hi")], "succeeded") == (mail.sent, run["a"].calls[0].status)


def test_a_program_agrees_to_other_arguments(server: Simulator) -> None:
    """A text that the tool cannot take is refused and leaves the question open; one that it can is what is called."""

    def say(desk: am.Desk) -> None:
        with pytest.raises(am.AgentMagicError, match="to"):
            desk.approve("a", text="{}")
        desk.approve("a", text='{"to": "b@x.org", "text": "Ho"}')

    mail, run = waits(server, say)
    assert ([("b@x.org", "Ho")], "succeeded") == (mail.sent, run["a"].calls[0].status)
    assert "b@x.org" in run["a"].calls[0].arguments


def test_a_program_denies(server: Simulator) -> None:
    """Nothing is called, and the reason is in the record."""
    mail, run = waits(server, lambda desk: desk.deny("a", "not today"))
    assert ([], "denied", "Denied: not today") == (mail.sent, run["a"].calls[0].status, run["a"].calls[0].error)


def test_a_program_agrees_to_an_answer(server: Simulator) -> None:
    """An agent with ask=True waits on the same desk, and passes on the text as it was changed."""
    _, run = waits(server, lambda desk: desk.approve("a", text="better"), "Write.", ask=True)
    assert "better" == run["a"].text


def test_a_program_is_told_what_is_not_open() -> None:
    """Answering what is not asked raises."""
    desk = am.Desk(agent(Mail()))
    assert [] == desk.pending
    with pytest.raises(am.AgentMagicError, match="No question is open"):
        desk.approve(1)
