"""How values show themselves; `agent_magic.show.bundles` registers that by class."""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def bundle_of(value: object) -> dict[str, str]:
    return {"text/plain": repr(value)}


class Shown:
    """A value that shows itself."""

    __slots__ = ()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return bundle_of(self)

    def _repr_html_(self) -> str | None:
        """Return the HTML alone, for what asks for no bundle, such as Panel."""
        return bundle_of(self).get("text/html")


class ShownFrame(Shown):
    """A frame that shows itself."""

    __slots__ = ()
