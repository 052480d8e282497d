"""What a run tells nobody: no text in traces, no settings from files that lie about, no word to any other server."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from agent_magic.simulator import child
from tests.kernels import ROOT
from tests.relay import Relay

KEY = "sk-" + "ant-api03-" + "CanaryCanary0123456789xyz"
WORDS = "the merger of Acme and Bolt"
TRACED = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

said, spans = [], []
class Span(NonRecordingSpan):
    def is_recording(self): return True
    def set_attribute(self, key, value): said.append([key, str(value)])
    def set_attributes(self, given): said.extend([key, str(value)] for key, value in given.items())
    def add_event(self, name, attributes=None, timestamp=None): said.append([name, str(attributes)])
    def record_exception(self, error, *_, **__): said.append(["error", str(error)])
    def set_status(self, status, description=None): said.append(["status", str(description), str(status.description)])
    def update_name(self, name): said.append(["name", name])
class Tracer(trace.Tracer):
    def start_span(self, name, *_, attributes=None, **__):
        spans.append(name)
        said.extend([key, str(value)] for key, value in (attributes or {}).items())
        return Span(SpanContext(1, 2, False, TraceFlags(1)))
    def start_as_current_span(self, *_, **__): raise NotImplementedError
class Provider(trace.TracerProvider):
    def get_tracer(self, *_, **__): return Tracer()
trace.set_tracer_provider(Provider())

import agent_magic as am
words = sys.argv[2]
agents = [am.Agent("a", f"On {words}", system=f"You know {words}"), am.Agent("b", f"[[status:400]] {words}")]
run = asyncio.run(am.Plan(agents).run(client=am.Claude(base_url=sys.argv[1])))
print(json.dumps({"spans": spans, "said": said, "text": run["a"].text, "statuses": list(run.agents["status"])}))
"""
HOSTILE = """
import asyncio, os
import agent_magic as am
from agent_magic.errors import NotConnected
before = dict(os.environ)
try:
    asyncio.run(am.Plan([am.Agent("a", "x")]).run())
except NotConnected:
    print("not connected")
assert before == dict(os.environ)
"""


@pytest.fixture(scope="module")
def relay():
    """What stands before the stand-in, and sees who asks it."""
    with child.start(latency="none", unlimited=True) as simulator, Relay(simulator.url) as made:
        yield made


def ran(code, *words, cwd=ROOT, **env):
    """Run a program in a process of its own; return what it printed."""
    free = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "AGENT_MAGIC_"))}
    apart = {"HOME": str(cwd), "PYTHONPATH": str(ROOT)} if cwd != ROOT else {}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(
        command, env={**free, **apart, **env}, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_traces_hold_no_text_and_no_key(relay):
    """S19: where a tracer is set up, spans tell of calls, models and tokens; of no prompt, answer or key."""
    found = json.loads(ran(TRACED, relay.url, WORDS, ANTHROPIC_API_KEY=KEY))
    assert ["succeeded", "failed"] == found["statuses"]
    assert len(found["spans"]) >= 2, "the tracer was asked"
    said = json.dumps(found["said"])
    assert "claude-haiku" in said
    for secret in (WORDS, KEY, found["text"], found["text"][:20]):
        assert secret not in said


def test_settings_of_a_hostile_folder_are_not_taken(relay, tmp_path):
    """S20: a `.env`, a plan or a profile beside the notebook brings no key, no address and no setting along."""
    before = len(relay.heads)
    lines = [f"ANTHROPIC_API_KEY={KEY}", f"ANTHROPIC_BASE_URL={relay.url}", "AGENT_MAGIC_LEDGER=stolen.sqlite3"]
    for name in (".env", "env", ".env.local", "anthropic.env"):
        (tmp_path / name).write_text("\n".join(lines))
    (tmp_path / "below").mkdir()
    for folder in (tmp_path, tmp_path / "below"):
        assert "not connected\n" == ran(HOSTILE, cwd=folder)
    assert before == len(relay.heads)
    assert not list(tmp_path.rglob("stolen*"))
