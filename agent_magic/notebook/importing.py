"""A plain Python script back into a plan: what `am.Plan(...)` is made of is read, and nothing of the script is run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.agent import OPTIONS
from agent_magic.errors import PlanError
from agent_magic.notebook.exporting import POLICY

if TYPE_CHECKING:
    from collections.abc import Callable

AGENT = ("name", "prompt")
PLAN = ("agents", "values")
CONTEXT = ("name", "text")
POLICY_ARGUMENTS = ("concurrency", "schedule")
"""What these take by position."""


def from_script(text: str) -> tuple[dict[str, Any], str]:
    """Read a script that declares a plan of plain values, such as those that `agent-magic export` writes.

    Args:
        text: The script.

    Returns:
        The plan as JSON plans are (see `agent_magic.declare.plan_json`), and the options of `%agents run` that its
        `Policy` stands for.

    Raises:
        PlanError: It is no Python, declares no plan, or something of it is computed; the message names the line.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise PlanError(f"Line {error.lineno}: this is no Python ({error.msg}).") from None
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    plans = [node for node in ast.walk(tree) if _called(node) == "Plan"]
    if not plans:
        raise PlanError("The script declares no plan: it has no call of am.Plan(...).")
    reading = _Reading(names)
    given = reading.arguments(plans[0], PLAN)
    agents = reading.list_of(given.get("agents"), reading.agent)
    contexts = reading.list_of(given.get("contexts"), lambda one: reading.values(one, "Context", CONTEXT))
    plan: dict[str, Any] = {"agents": agents, "values": reading.value(given["values"]) if "values" in given else {}}
    plan |= {
        one: reading.value(given[one]) for one in ("name", "description", "on_cycle", "on_missing") if one in given
    }
    if contexts:
        plan["contexts"] = {one.get("name"): one.get("text") for one in contexts}
    return plan, _run_options([reading.values(node, "Policy", POLICY_ARGUMENTS) for node in _policies(tree)])


def _policies(tree: ast.Module) -> list[ast.expr]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "Policy"]


def _called(node: ast.AST) -> str:
    """Return the name of what is called, without where it is from; an empty string where nothing is."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _run_options(policies: list[dict[str, Any]]) -> str:
    given = policies[0] if policies else {}
    return " ".join(f"{flag} {given[name]}" for flag, (name, _) in POLICY.items() if given.get(name) is not None)


class _Reading:
    """Reads values out of a script, through the names it gives them."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self._names = names

    def named(self, node: ast.expr) -> ast.expr:
        """Return what a name stands for."""
        return self._names.get(node.id, node) if isinstance(node, ast.Name) else node

    def value(self, node: ast.expr) -> Any:
        """Return a plain value."""
        try:
            return ast.literal_eval(self.named(node))
        except (ValueError, SyntaxError, TypeError, RecursionError):
            raise PlanError(f"Line {node.lineno}: {ast.unparse(node)[:60]!r} is computed. {_HOW}") from None

    def arguments(self, node: ast.AST, places: tuple[str, ...]) -> dict[str, ast.expr]:
        """Return the arguments of a call by name."""
        if (
            not isinstance(node, ast.Call)
            or len(node.args) > len(places)
            or any(one.arg is None for one in node.keywords)
        ):
            raise PlanError(f"Line {getattr(node, 'lineno', 1)}: its arguments are computed. {_HOW}")
        return {**dict(zip(places, node.args, strict=False)), **{one.arg or "": one.value for one in node.keywords}}

    def list_of(self, node: ast.expr | None, read: Callable[[ast.expr], dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what stands in a list."""
        if node is None:
            return []
        found = self.named(node)
        if not isinstance(found, ast.List | ast.Tuple):
            raise PlanError(f"Line {node.lineno}: {ast.unparse(node)[:60]!r} is no plain list. {_HOW}")
        return [read(self.named(one)) for one in found.elts]

    def values(self, node: ast.expr, kind: str, places: tuple[str, ...]) -> dict[str, Any]:
        """Return the plain arguments of a call."""
        if _called(node) != kind:
            raise PlanError(f"Line {node.lineno}: {ast.unparse(node)[:60]!r} is no am.{kind}(...). {_HOW}")
        return {name: self.value(one) for name, one in self.arguments(node, places).items()}

    def agent(self, node: ast.expr) -> dict[str, Any]:
        """Return an agent as JSON plans have it."""
        row = self.values(node, "Agent", AGENT)
        wrong = sorted(set(row) - {*AGENT, *OPTIONS, "after", "each"})
        if wrong:
            raise PlanError(f"Line {node.lineno}: an agent has no {wrong[0]!r}.")
        after: Any = row.get("after") or ()
        return {
            **row,
            "after": list(cast("tuple[Any, ...]", after)) if isinstance(after, tuple | set) else after,
        }  # "a,b" is read as it stands


_HOW = "Only plain values can be read without running the script; a plan of its own writes itself with plan.to_json()."
