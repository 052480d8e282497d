"""Code of the user's in prompts, in a real kernel: it cannot end the kernel, and Stop stops it."""

from __future__ import annotations

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

STOP_S = 1.0
"""Stop is promised within a second, and by so much later as the machine is slow."""

VALUES = """\
import sys, time

def leave():
    sys.exit(1)

class Leaves:
    def __str__(self):
        raise KeyboardInterrupt("of its own")

class Sleeps:
    def __str__(self):
        print("rendering", flush=True)
        time.sleep(1000)

leaves, sleeps = Leaves(), Sleeps()
say = lambda: print("rendering", flush=True)
"""
LEAVING = {"a function": "{{ leave() }}", "a text": "{{ leaves }}"}
ENDLESS = {
    "a loop": "{{ say() }}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a text": "{{ sleeps }}",
}
COMMANDS = ("plan", "run", "start", "plan --pilot 1")


@pytest.fixture(scope="module")
def kernel():
    """A kernel with the extension, such values, and a simulated API."""
    with Kernel() as started:
        for code in ("%load_ext agent_magic", "%agents connect simulator --latency none", VALUES):
            assert "ok" == started.do(code).status
        yield started


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("prompt", LEAVING.values(), ids=LEAVING)
def test_no_value_ends_the_kernel(kernel, prompt, command):
    """Safety 1: a prompt whose code exits is a `UsageError` of one line that names its agent, and the kernel lives."""
    kernel.do("%agents clear")
    kernel.do(f"%%agent speaker\nsay {prompt}")
    reply = kernel.do(f"%agents {command}")
    said = reply.text + kernel.do("%agents wait").text if command == "start" else reply.text
    assert "'speaker'" in said
    assert "Traceback" not in said
    assert "2" == kernel.do("1 + 1").text.strip()


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("prompt", ENDLESS.values(), ids=ENDLESS)
def test_stop_ends_a_prompt_that_never_ends(kernel, prompt, command):
    """Safety 3: Stop ends a cell at once while a prompt is rendered; nothing was sent, and the next cell runs."""
    kernel.do("%agents clear")
    kernel.do(f"%%agent speaker\n{prompt}")
    cell = kernel.start(f"%agents {command}")
    kernel.until(cell, "rendering")
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert ("error", "KeyboardInterrupt") == (reply.status, reply.ename)
    assert reply.seconds <= STOP_S + kernel.slack_s()
    assert "2" == kernel.do("1 + 1").text.strip()


def test_stop_ends_a_prompt_that_waits_for_an_answer(kernel):
    """A prompt whose code is only reached with its parent's answer is stopped too: what finished is kept."""
    kernel.do(
        "%agents clear\n"
        "def endless(text):\n"
        "    if 'answer' not in text[:7]:\n"  # else it is the placeholder of the look ahead
        "        say()\n"
        "        while True: pass\n"
    )
    kernel.do("%%agent first\nHello.")
    kernel.do("%%agent second\n{{ endless(first) }}")
    cell = kernel.start("%agents run --budget 1")
    kernel.until(cell, "rendering")
    kernel.interrupt(cell)
    reply = kernel.wait(cell)
    assert ("error", "KeyboardInterrupt") == (reply.status, reply.ename)
    assert "1 of 2 agents had finished" in reply.evalue
    assert "cancelled" in kernel.do("run = %agents last\nprint(run['second'].status)").text


def test_an_endless_prompt_in_the_background_stops_too(kernel):
    """Without a cell that waits the kernel ignores Stop; while a prompt is rendered it does not."""
    kernel.do("%agents clear")
    kernel.do(f"%%agent speaker\n{ENDLESS['a text']}")
    cell = kernel.start("%agents start")
    kernel.until(cell, "rendering")
    kernel.interrupt(cell)
    kernel.wait(cell)
    assert "2" == kernel.do("1 + 1").text.strip()


def test_stop_ends_the_card_of_a_context(kernel):
    """`%%context` renders at once, in a cell that does not wait."""
    cell = kernel.start(f"%%context rules\n{ENDLESS['a loop']}")
    kernel.until(cell, "rendering")
    kernel.interrupt(cell)
    assert "KeyboardInterrupt" == kernel.wait(cell).ename
