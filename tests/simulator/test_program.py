"""The program and its starter: doors, ends, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from urllib.parse import urlsplit

import pytest

from agent_magic import Simulator
from agent_magic.errors import DeclarationError
from agent_magic.simulator import SimulatorError, start
from agent_magic.simulator.program import main

PATIENCE_S = 10.0
BODY = {"model": "claude-haiku-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "trees"}]}


@pytest.fixture
def program(repo):
    """Run the program with arguments; it is killed at the end of the test if it is still there."""
    running = []

    def run(*options: str) -> tuple[subprocess.Popen, str]:
        command = [sys.executable, "-W", "error", "-m", "agent_magic.simulator", *options]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(command, cwd=repo, text=True, **pipes)
        running.append(process)
        assert process.stdout
        line = process.stdout.readline()
        where = json.loads(line)
        assert {"url", "pid"} == set(where)
        assert process.pid == where["pid"]
        return process, where["url"]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def ended_well(process: subprocess.Popen) -> bool:
    """Wait for the end; nothing more was printed, no traceback."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return (0, "", "") == (process.returncode, out, err)


def gone(url: str) -> bool:
    """Wait until nothing listens at a URL any more."""
    where, until_s = urlsplit(url), time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            socket.create_connection((where.hostname, where.port), 1).close()
        except ConnectionRefusedError:
            return True
        except (ConnectionResetError, TimeoutError):  # Caught in the act: the listener closed while it was asked.
            continue
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_cleanly_at_a_signal(program, number) -> None:
    """SIGTERM and SIGINT end it with status 0 and nothing printed, also with a stream open."""
    process, url = program("--latency", "ttft=0,pace=1")
    where = urlsplit(url)
    data = json.dumps({**BODY, "stream": True}).encode()
    with socket.create_connection((where.hostname, where.port)) as link:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: {where.netloc}\r\nx-api-key: k\r\nanthropic-version: v\r\n"
        link.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        assert link.recv(100).startswith(b"HTTP/1.1 200")
        process.send_signal(number)
        assert ended_well(process)


def test_ends_when_stdin_closes(program) -> None:
    """With `--until-stdin-closes` it ends when standard input does."""
    process, url = program("--until-stdin-closes")
    process.stdin.close()
    process.stdin = None
    assert ended_well(process)
    assert gone(url)


@pytest.mark.skipif(sys.platform == "win32", reason="standard input tells on Windows")
def test_ends_when_the_parent_is_gone(program) -> None:
    """With `--parent-pid` it ends when that process does."""
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process, _ = program("--parent-pid", str(parent.pid))
    parent.communicate(b"\n")
    assert ended_well(process)


def test_child_dies_with_a_killed_parent(repo) -> None:
    """When the process that started it is killed with -9, the simulator ends."""
    code = """
        from agent_magic.simulator import start
        print(start(latency="none").url, flush=True)
        input()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=repo,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout
        url = parent.stdout.readline().strip()
        assert url
    finally:
        parent.kill()
        parent.communicate()
    assert gone(url)


def test_stop_twice(talk) -> None:
    """Stopping is final and may be repeated; the secret is in no repr."""
    simulator = start(latency="none")
    assert simulator.running
    simulator.stop()
    simulator.stop()
    assert not simulator.running
    assert gone(simulator.url)
    assert simulator.url not in repr(simulator)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups of this kind")
def test_an_interrupt_of_the_terminal_does_not_reach_it() -> None:
    """It has a session of its own."""
    with start(latency="none") as simulator:
        assert os.getsid(simulator.pid) != os.getsid(0)


def test_a_start_that_fails_says_why(tmp_path) -> None:
    """The error has the last lines of the program."""
    with pytest.raises(SimulatorError, match="latency 'soon' is unknown: use none, fast, real"):
        start(latency="soon")
    with pytest.raises(SimulatorError, match="No such file"):
        start(script=tmp_path / "missing.jsonl")
    with pytest.raises(SimulatorError, match=r"did not start: argument --slots: '2.5' must be an integer >= 1$"):
        start(slots=2.5)  # pyright: ignore[reportArgumentType]  # what a person may write
    with pytest.raises(DeclarationError, match=r"Simulator has no option 'slot'.*Did you mean 'slots'"):
        Simulator(slot=4)


def test_a_taken_port_is_an_error(talk, capsys) -> None:
    """A port that is in use ends the program with status 1 and one line."""
    port = urlsplit(talk.url).port
    assert 1 == main(["--port", str(port)])
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--host", "0.0.0.0"], ["--token", "a/b"], ["--rpm", "0"], ["--latency", "x"]])
def test_wrong_options(options, capsys) -> None:
    """Wrong options leave with status 2; it never listens on another address."""
    with pytest.raises(SystemExit) as caught:
        main(options)
    assert 2 == caught.value.code
    assert "error: " in capsys.readouterr().err


def test_starter_loads_no_server(repo) -> None:
    """Importing the package's door imports neither the web framework nor the SDK."""
    code = "import sys, agent_magic.simulator; print([m for m in ('aiohttp', 'anthropic') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, check=True)
    assert "[]" == found.stdout.strip()


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:80:80", "", "[::1]", "10.0.0.1:80"]
)
def test_foreign_hosts_are_refused(talk, host) -> None:
    """A request that names another host is a 403, whatever its path: no web page can reach in."""
    answer = talk.get("/v1/models", headers={"host": host, "x-api-key": "k", "anthropic-version": "v"})
    assert (403, "permission_error") == (answer.status, answer.body["error"]["type"])


def test_localhost_is_taken(talk) -> None:
    """The two names of this machine are taken, in any case."""
    for host in ("127.0.0.1", "LOCALHOST:9"):
        assert 200 == talk.get("/v1/models", headers={"host": host, "x-api-key": "k", "anthropic-version": "v"}).status


def test_token_path(talk) -> None:
    """Without the random prefix every path is a 404; the starter always has one."""
    where = urlsplit(talk.url)
    assert len(where.path) > 20
    bare = type(talk)(f"http://{where.netloc}")
    for path in ("/v1/models", "/simulator/log", "/x" + where.path + "/v1/models"):
        assert 404 == bare.get(path).status
    assert "not_found_error" == bare.post(BODY).body["error"]["type"]
    assert 200 == talk.get("/v1/models").status


def test_wrong_method_and_large_body(talk) -> None:
    """A wrong method is a 405 and a body over 32 MB a 413, both in the documented form."""
    assert (405, "invalid_request_error") == ((answer := talk.get("/v1/messages")).status, answer.body["error"]["type"])
    answer = talk.post(b" " * (32 * 1024 * 1024 + 1))
    assert (413, "request_too_large") == (answer.status, answer.body["error"]["type"])


def test_a_client_that_leaves_is_recorded(started, capfd) -> None:
    """A stream that its client leaves is aborted, with the tokens that went out until then."""
    talk = started(latency="ttft=0,pace=10,spread=0")  # ten seconds to a hundred tokens

    async def leave(client) -> None:
        async with client.messages.stream(**{**BODY, "max_tokens": 1000}) as stream:
            async for _ in stream.text_stream:
                break

    talk.sdk(leave)
    until_s = time.monotonic() + PATIENCE_S
    while not (log := talk.log())["aborted"] and time.monotonic() < until_s:
        pass
    entry = log["requests"][0]
    assert (1, 0, None) == (log["aborted"], log["in_flight"], entry["finished_s"])
    assert 0 < entry["output_tokens"] < 100
    assert "" == capfd.readouterr().err


def test_leaving_a_hundred_at_once_prints_nothing(program, repo) -> None:
    """Clients that all vanish at once leave no traceback."""
    process, url = program("--latency", "ttft=0,pace=50,spread=0", "--unlimited")
    where = urlsplit(url)
    data = json.dumps({**BODY, "stream": True}).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: {where.netloc}\r\nx-api-key: k\r\nanthropic-version: v\r\n"

    async def visit() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        assert await reader.read(10)
        writer.transport.abort()

    async def all_of_them() -> None:
        await asyncio.gather(*(visit() for _ in range(100)))

    asyncio.run(all_of_them())
    process.terminate()
    assert ended_well(process)


def test_journal(talk) -> None:
    """The journal has one record per request, with what was asked, when, and what it took."""
    prompt = "A long question about trees. " * 5
    talk.create(prompt)
    talk.stream(prompt)
    talk.post(b"{")
    plain, streamed, wrong = talk.log()["requests"]
    assert (prompt[:80], plain["prompt_hash"]) == (plain["prompt"], streamed["prompt_hash"])
    assert (False, True) == (plain["stream"], streamed["stream"])
    assert (200, 400, "invalid_request_error") == (plain["status"], wrong["status"], wrong["error"])
    assert plain["started_s"] <= plain["first_byte_s"] <= plain["finished_s"] <= streamed["started_s"]
    assert (1, "claude-haiku-5-5") == (plain["overlap"], plain["model"])
    assert plain["input_tokens"] > 30
    assert plain["output_tokens"] > 50
    talk.reset()
    assert [] == talk.log()["requests"]


def test_limits_are_announced_and_enforced(started) -> None:
    """Without options the Start tier is announced; a given limit answers 429 with whole seconds to wait."""
    usual = started(latency="none").post(BODY).headers
    assert ("1000", "999") == tuple(usual[f"anthropic-ratelimit-requests-{key}"] for key in ("limit", "remaining"))
    assert "2400000" == usual["anthropic-ratelimit-tokens-limit"]
    tight = started(latency="none", rpm=6)
    answers = [tight.post(BODY) for _ in range(2)]
    assert [200, 429] == [answer.status for answer in answers]
    assert "rate_limit_error" == answers[1].body["error"]["type"]
    assert 5 <= int(answers[1].headers["retry-after"]) <= 10  # ten, less the time between the two
    assert "0" == answers[1].headers["anthropic-ratelimit-requests-remaining"]
    assert 200 == tight.post({**BODY, "model": "claude-opus-5-5"}).status


def test_unlimited_has_no_headers(talk) -> None:
    """Without limits nothing is announced."""
    assert not [key for key in talk.post(BODY).headers if key.startswith("anthropic-ratelimit")]


def test_slots_alone_leave_each_answer_its_pace(started):
    """A server that says only how many requests it works on answers, each as fast as its latency says."""
    talk = started(slots=1, latency="ttft=0,pace=2000,spread=0", unlimited=True)
    assert "end_turn" == talk.stream("Say it. [[tokens:20]]").stop_reason
    assert "end_turn" == talk.create("Say it. [[tokens:20]]").stop_reason
