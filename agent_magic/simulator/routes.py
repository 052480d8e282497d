"""The responses of each route, over HTTP or in process. It has no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agent_magic.simulator import completions
from agent_magic.simulator.batches import MOST_BYTES, page_of
from agent_magic.simulator.batches import PATH as BATCHES
from agent_magic.simulator.errors import ApiError, invalid
from agent_magic.simulator.journal import Entry
from agent_magic.simulator.json_types import Json
from agent_magic.simulator.models import MODELS, describe
from agent_magic.simulator.response import encode, whole
from agent_magic.simulator.service import MESSAGES, Exchange, Service

PAGE = 20
"""Default rows of a page."""
LINES_TYPE = "application/x-jsonl"
MODEL_LISTS = ("/v1/models", "/v1/models/{id}")
RESULTS = f"{BATCHES}/{{id}}/results"
MAX_BODY = 32 * 1024 * 1024
HTTP_MESSAGES = {
    404: "Not found.",
    405: "Method not allowed.",
    413: f"The request is larger than {MAX_BODY} bytes.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its body, the id in its path, its query fields."""

    body: bytes = b""
    id: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])


Answer: TypeAlias = Callable[[Service, Asked, Entry, float], Exchange]


def _page(asked: Asked) -> tuple[int, str | None]:
    limit = asked.query.get("limit", "")
    return (int(limit) if limit.isdigit() else PAGE), asked.query.get("after_id")


def _list_batches(service: Service, asked: Asked, _entry: Entry, now_s: float) -> Exchange:
    return _found(service.batches.list(*_page(asked), now_s))


def _list_models(_service: Service, asked: Asked, _entry: Entry, _now_s: float) -> Exchange:
    return _found(page_of([describe(one) for one in MODELS.values()], *_page(asked)))


def _model(_service: Service, asked: Asked, _entry: Entry, _now_s: float) -> Exchange:
    model = MODELS.get(asked.id)
    if model is None:
        raise ApiError(404, f"model: {asked.id}")
    return _found(describe(model))


ROUTES: Mapping[tuple[str, str], Answer] = {
    ("POST", MESSAGES): lambda service, asked, entry, now_s: service.exchange(asked.body, entry, now_s),
    ("POST", f"{MESSAGES}/count_tokens"): lambda service, asked, entry, _: service.count_tokens(asked.body, entry),
    ("POST", completions.PATH): lambda service, asked, entry, now_s: completions.exchange(
        service, asked.body, entry, now_s
    ),
    ("POST", BATCHES): lambda service, asked, _, now_s: _looked_at(*service.batches.create(asked.body, now_s)),
    ("GET", BATCHES): _list_batches,
    ("GET", f"{BATCHES}/{{id}}"): lambda service, asked, _, now_s: _looked_at(*service.batches.look(asked.id, now_s)),
    ("POST", f"{BATCHES}/{{id}}/cancel"): lambda service, asked, _, now_s: _found(
        service.batches.cancel(asked.id, now_s)
    ),
    ("DELETE", f"{BATCHES}/{{id}}"): lambda service, asked, _, now_s: _found(service.batches.delete(asked.id, now_s)),
    ("GET", RESULTS): lambda service, asked, _, now_s: Exchange(
        whole(200, b"".join(service.batches.results(asked.id, now_s)), content_type=LINES_TYPE)
    ),
    ("GET", MODEL_LISTS[0]): _list_models,
    ("GET", MODEL_LISTS[1]): _model,
}
"""By method and path."""


def decide(
    service: Service, method: str, path: str, asked: Asked, headers: Mapping[str, str], entry: Entry, now_s: float
) -> Exchange:
    try:
        if len(asked.body) > (MOST_BYTES if (method, path) == ("POST", BATCHES) else MAX_BODY):
            raise ApiError(413, HTTP_MESSAGES[413])  # noqa: TRY301 - answered like the others
        if path in MODEL_LISTS and "anthropic-version" not in headers and "x-api-key" not in headers:
            return completions.models(asked.id)  # asked by a client of the other API
        if path != completions.PATH:  # a self-hosted server asks for no key
            check_credentials(headers)
        return ROUTES[method, path](service, asked, entry, now_s)
    except ApiError as error:
        return service.error(error, entry)


def check_credentials(headers: Mapping[str, str]) -> None:
    """Any will do."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if not (headers.get("x-api-key") or (scheme.lower() == "bearer" and key.strip())):
        raise ApiError(401, "x-api-key header is required")
    if not headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")


def _found(body: Json) -> Exchange:
    return Exchange(whole(200, encode(body)))


def _looked_at(body: Json, again_s: float | None) -> Exchange:
    found = _found(body)
    wait = () if again_s is None else (("retry-after-ms", str(round(1000 * again_s))),)
    return replace(found, response=replace(found.response, headers=wait))
