"""A server's dialect of the chat completions API, learned from refusals.

Servers refuse fields they do not know, or a model does not accept. A refusal bills nothing, so the same request is sent
once more without the field, as are all later ones for that model.

Source: the vendors' pages on chat completions: `max_tokens` is refused by reasoning models in favour of
`max_completion_tokens`, `stream_options` by servers without it, and `json_schema` by servers without grammars.
"""

from __future__ import annotations

from typing import NamedTuple

UNPROCESSABLE = frozenset({400, 422, 501})


class Dialect(NamedTuple):
    """A server's dialect for a model.

    Attributes:
        most: Name of the field that caps the answer.
        counts: True to ask for token counts of a stream.
        schemas: True to send the schema of an answer.
    """

    most: str = "max_tokens"
    counts: bool = True
    schemas: bool = True

    def without(self, status: int, refusal: str, *, typed: bool) -> Dialect | None:
        """Return the dialect without the refused field, or `None` if the refusal names none that can be omitted.

        Args:
            status: HTTP status of the refusal.
            refusal: Its message.
            typed: True if the request had a schema.
        """
        if status not in UNPROCESSABLE:
            return None
        if self.most == "max_tokens" and "max_completion_tokens" in refusal:
            return self._replace(most="max_completion_tokens")
        if self.counts and ("stream_options" in refusal or "include_usage" in refusal):
            return self._replace(counts=False)
        if typed and self.schemas and ("response_format" in refusal or "json_schema" in refusal):
            return self._replace(schemas=False)
        return None


USUAL = Dialect()
