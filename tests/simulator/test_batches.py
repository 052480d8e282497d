"""Batches of the mock server, as clients manage them."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic, BadRequestError

from tests.simulator.conftest import MODEL


def test_a_batch_is_deleted_when_it_has_ended(started) -> None:
    """Not before; then it is gone from the list, and the next one has another id."""
    talk = started(batch="takes=1000,poll=0.05")

    async def manage(client: AsyncAnthropic) -> None:
        params: Any = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "Hi."}]}
        batches = client.messages.batches
        made = await batches.create(requests=[{"custom_id": "a", "params": params}])
        try:
            await batches.delete(made.id)
            raise AssertionError("it was deleted while it was processed")
        except BadRequestError:
            pass
        await batches.cancel(made.id)
        while (await batches.retrieve(made.id)).processing_status != "ended":
            pass
        assert made.id == (await batches.delete(made.id)).id
        assert [] == (await batches.list()).data
        again = await batches.create(requests=[{"custom_id": "a", "params": params}])
        assert made.id != again.id

    talk.sdk(manage)
