"""Prompt caching, on virtual time and over HTTP."""

from __future__ import annotations

import json
from typing import Any

from agent_magic.simulator.request import Request, parse
from agent_magic.simulator.response import InputUsage
from agent_magic.simulator.service import PromptCache

MARK = {"type": "ephemeral"}
LONG = "shared context " * 400  # 1500 tokens


def cached(question: str, *, text: str = LONG, model: str = "claude-haiku-5-5", mark: dict[str, Any] = MARK) -> Request:
    """A request with a marked system prompt and a question of its own."""
    system = [{"type": "text", "text": text, "cache_control": mark}]
    body = {"model": model, "max_tokens": 10, "system": system, "messages": [{"role": "user", "content": question}]}
    return parse(json.dumps(body).encode())


def use(cache: PromptCache, request: Request, now_s: float) -> InputUsage:
    """A request whose response begins at once."""
    found = cache.look_up(request, now_s)
    cache.begin(found, now_s)
    return found.usage


def test_first_writes_second_reads() -> None:
    """The marked prefix is written once and read afterwards; the question is never cached."""
    cache, request = PromptCache(), cached("What is this?")
    first, second = use(cache, request, 0.0), use(cache, cached("And what is that?"), 1.0)
    prefix = request.segments[0].tokens
    assert InputUsage(request.input_tokens - prefix, written_5m=prefix) == first
    assert (prefix, 0) == (second.read, second.written)
    assert cached("And what is that?").input_tokens == second.uncached + second.read


def test_an_entry_is_usable_once_the_response_begins() -> None:
    """Requests that arrive before the leader's response begins all write."""
    cache = PromptCache()
    leader = cache.look_up(cached("a"), 0.0)
    assert cache.look_up(cached("b"), 0.1).usage.read == 0
    cache.begin(leader, 0.5)
    assert cache.look_up(cached("c"), 0.6).usage.read > 0


def test_life_counts_from_the_start_and_each_read_renews_it() -> None:
    """Five minutes from the start of the request that wrote or last read it."""
    cache = PromptCache()
    cache.begin(cache.look_up(cached("a"), 0.0), 200.0)
    assert use(cache, cached("b"), 299.0).read > 0
    assert use(cache, cached("c"), 598.0).read > 0
    assert use(cache, cached("d"), 898.0).read == 0


def test_an_hour_is_an_hour() -> None:
    """A mark with `ttl` of an hour is billed as such and lives as long."""
    cache = PromptCache()
    request = cached("a", mark={"type": "ephemeral", "ttl": "1h"})
    usage = use(cache, request, 0.0)
    assert (0, request.segments[0].tokens) == (usage.written_5m, usage.written_1h)
    assert use(cache, request, 3599.0).read > 0


def test_short_prefixes_and_other_models_are_not_cached() -> None:
    """Below the model's minimum nothing is written; another model has another cache."""
    cache = PromptCache()
    assert use(cache, cached("a", text="short"), 0.0).written == 0
    assert use(cache, cached("a", model="claude-haiku-4-5"), 0.0).written == 0
    assert use(cache, cached("a"), 0.0).written > 0
    assert use(cache, cached("a", model="claude-opus-5-5"), 1.0).read == 0


def test_a_changed_prefix_is_another_prefix() -> None:
    """One changed character at the beginning, and nothing is read."""
    cache = PromptCache()
    use(cache, cached("a"), 0.0)
    assert use(cache, cached("a", text="x" + LONG), 1.0).read == 0


def test_four_agents_over_http(talk) -> None:
    """A leader writes and three followers read: the numbers of the bill add up to the counted prompt."""
    system = [{"type": "text", "text": LONG, "cache_control": MARK}]
    leader = talk.stream("Lead.", system=system).usage
    followers = [talk.create(f"Follow, number {number}.", system=system).usage for number in range(3)]
    assert (leader.cache_creation_input_tokens, 0) == (
        followers[0].cache_read_input_tokens,
        leader.cache_read_input_tokens,
    )
    assert all(usage.cache_read_input_tokens == leader.cache_creation_input_tokens for usage in followers)
    counted = talk.sdk(
        lambda client: client.messages.count_tokens(
            model="claude-haiku-5-5", system=system, messages=[{"role": "user", "content": "Follow, number 1."}]
        )
    )
    assert counted.input_tokens == followers[1].input_tokens + followers[1].cache_read_input_tokens


def test_max_tokens_zero_fills_the_cache(talk) -> None:
    """A request for no tokens answers with no content and leaves the cache warm."""
    system = [{"type": "text", "text": LONG, "cache_control": MARK}]
    filled = talk.create("Warm up.", system=system, max_tokens=0)
    assert ([], 0) == (filled.content, filled.usage.output_tokens)
    assert talk.create("Go.", system=system).usage.cache_read_input_tokens > 0


def looped(calls: int, **more: Any) -> list[Request]:
    """The requests of two turns: a prompt, then so many calls and their results, with the moving mark."""
    tools = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
    body = {"model": "claude-haiku-5-5", "max_tokens": 10, "tools": tools, "cache_control": MARK, **more}
    ask: list[dict[str, Any]] = [{"role": "user", "content": LONG}]
    made = [{"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}} for number in range(calls)]
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "7"} for call in made]
    turns = (ask, [*ask, {"role": "assistant", "content": made}, {"role": "user", "content": results}])
    return [parse(json.dumps({**body, "messages": messages}).encode()) for messages in turns]


def test_the_moving_mark_looks_back_over_twenty_blocks() -> None:
    """The mark at the top stands at the end of each turn. A turn of ten calls and ten results is one block too long."""
    for calls, hit in ((1, True), (9, True), (10, False)):
        cache, (first, second) = PromptCache(), looped(calls)
        written = use(cache, first, 0.0).written
        found = use(cache, second, 1.0)
        assert (written if hit else 0) == found.read
        assert second.input_tokens == found.read + found.written


def test_tool_choice_empties_the_messages_and_a_tool_empties_all() -> None:
    """Tools and system stay cached under another choice; another tool begins anew."""
    system = [{"type": "text", "text": LONG, "cache_control": MARK}]
    cache = PromptCache()
    first = use(cache, looped(1, system=system)[0], 0.0)
    chosen = use(cache, looped(1, system=system, tool_choice={"type": "none"})[0], 1.0)
    assert 0 < chosen.read < first.written
    other = [{"name": "see", "input_schema": {"type": "object", "properties": {}}}]
    assert use(cache, looped(1, system=system, tools=other)[0], 2.0).read == 0
