"""A reader without a key has the file beside the notebook, and Run All works from it."""

from __future__ import annotations

import pytest

from tests.kernels import Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


def test_a_reader_without_a_key_gets_the_recording_beside(tmp_path):
    """Only if it holds all that the plan asks; and then it says so."""
    with Kernel() as kernel:
        kernel.do("%load_ext agent_magic\n%agents connect simulator --latency none")
        kernel.do("%%agent a\nsay one thing")
        kernel.do("first = %agents run")
        assert "recorded in" in kernel.do("%agents record mine.cassette.jsonl").text
        kernel.do("open('broken.cassette.jsonl', 'w').write('no')\n%agents connect api")
        reply = kernel.do("run = %agents run")
        assert "no API key: answers come from mine.cassette.jsonl" in reply.text
        assert "(True, 'replay')" in kernel.do("run['a'].text == first['a'].text, run['a'].source").text
        kernel.do("%agents connect api")
        kernel.do("%%agent a\nsay another thing")
        assert "No API key found" in kernel.do("%agents run").text


def test_a_reader_whose_server_cannot_be_reached_is_told_of_the_recording_beside(tmp_path):
    """The notebook connects to the writer's own server: the failure says what answers instead."""
    with Kernel() as kernel:
        kernel.do("%load_ext agent_magic\n%agents connect simulator --latency none")
        kernel.do("%%agent a\nsay one thing")
        kernel.do("first = %agents run")
        kernel.do("%agents record mine.cassette.jsonl")
        kernel.do("import agent_magic as am\nclient = am.Claude(api_key='x', base_url='http://127.0.0.1:9')")
        kernel.do("%agents connect client")
        reply = kernel.do("run = %agents run --max-attempts 1")
        told = "mine.cassette.jsonl has all these answers: %agents replay mine.cassette.jsonl, then %agents run."
        assert told in " ".join(reply.text.split())
        kernel.do("%agents replay mine.cassette.jsonl")
        kernel.do("run = %agents run")
        assert "(True, 'replay')" in kernel.do("run['a'].text == first['a'].text, run['a'].source").text
