"""`%agents plan --pilot N` in a kernel: the price, the pilot, the estimate, and a run that takes the answers over."""

from __future__ import annotations

import json
import urllib.request

import pytest

from agent_magic.simulator import child
from tests.kernels import Kernel

pytestmark = pytest.mark.kernel

DECLARE = """%load_ext agent_magic
%config AgentMagics.ledger = "off"
items = list("abcdef")
get_ipython().run_cell_magic("agent", "label --each items", "[[tokens:30]] {{ item }}")"""


def asked(server):
    """Count the requests that cost something."""
    with urllib.request.urlopen(f"{server}/simulator/log", timeout=60) as reply:
        return sum(entry["route"] == "/v1/messages" for entry in json.load(reply)["requests"])


def test_a_pilot_is_said_bought_and_taken_over():
    """Two of six are bought for the plan, the other four by the run, and none twice."""
    with child.start(latency="none", unlimited=True) as server:
        env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"}
        with Kernel(**env) as kernel:
            assert "ok" == kernel.do(DECLARE).status
            text = kernel.do("%agents plan --pilot 2").text
            assert text.index("pilot: label_0, label_3") < text.index("2 requests, about") < text.index("agent  ")
            assert "pilot ran label_0, label_3 for " in " ".join(text.split())
            assert "lengths 4 pilot" in text
            assert 2 == asked(server.url)
            kernel.do("run = %agents run")
            assert "True 6" == kernel.do("print(run.ok, len(run.agents))").text.strip()
            assert 6 == asked(server.url)
            assert ">= 1" in kernel.do("%agents plan --fresh --pilot 0").text
