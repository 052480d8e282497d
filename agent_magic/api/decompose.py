"""Plans without a model: a job split by file, feature, layer, phase or module, and how much of a plan is concurrent.

```python
plan = am.decompose.by_module("src/shop", prompt="Review this module: {{ source }}")
am.decompose.analyse(plan).score  # 1 - critical path / total work
print(plan.to_cell())  # its agents as a %%agents cell to change, with the values to define first
run = await plan.run(client=client)  # in a notebook: run = %agents run --plan plan
```
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from agent_magic.api.plan import Plan
from agent_magic.declare.agent import Agent
from agent_magic.declare.template import Template, renamed_names
from agent_magic.declare.validation import RESERVED, must_be, names_of
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Analysis", "analyse", "by_feature", "by_file", "by_layer", "by_line", "by_module", "by_phase"]

JOIN = "Join these answers into one, the most important first, each point once:"
LAYERS = ("api", "ui", "tests", "docs")
PHASES = ("analyse", "implement", "validate")
ROLES_OF_PHASES = {"analyse": "analyzer", "implement": "writer", "validate": "critic"}
NOT_SPLIT = "Not split: the text has one line. Write a step per line, or have a model plan it: %%plan."
_ORDER = re.compile(r"^(?:then|next|after|afterwards|finally|lastly|based on|using)\b", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s*")


def by_file(
    paths: str | Path | Iterable[str | Path], *, prompt: str = "Review this file.", role: str | None = None
) -> Plan:
    """Return a plan with a concurrent agent per file, and a last one that joins their answers.

    Args:
        paths: The files, read as UTF-8 now. A folder stands for all text files in it, hidden ones left out.
        prompt: The common prompt, followed by the file's path and text.
        role: Their role.

    Raises:
        PlanError: There is no file, or one cannot be read.
    """
    files = {str(path): _read(path) for path in _files(paths, _is_text)}
    each = Agent("file", f"{prompt}\n\n{{{{ key }}}}\n\n{{{{ item }}}}", each="files", role=role)
    about = "files is {path: text}: {path: pathlib.Path(path).read_text() for path in ...}"
    return Plan([each, _joined(["file"])], {"files": files}, name="by_file", description=about)


def by_feature(
    features: Iterable[str] | Mapping[str, str],
    *,
    prompt: str = "Design this feature.",
    qa: str = "Check these for gaps and contradictions.",
) -> Plan:
    """Return a plan with a concurrent agent per feature, and a quality gate that waits for all.

    Args:
        features: Names, or a mapping of names to descriptions.
        prompt: The common prompt, followed by the feature.
        qa: The gate's prompt, followed by the answers.

    Raises:
        PlanError: There is no feature.
    """
    told = _named(features, "features")
    agents = [Agent(name, f"{prompt}\n\n{text}", role="planner") for name, text in told.items()]
    return Plan([*agents, _joined([*told], "qa", qa, "critic")], name="by_feature")


def by_layer(
    goal: str, layers: Iterable[str] | Mapping[str, str] = LAYERS, *, prompt: str = "Do the part of this layer."
) -> Plan:
    """Return a plan with a concurrent agent per layer of a system, and a last one that integrates them.

    Args:
        goal: The product.
        layers: Names, or a mapping of names to descriptions.
        prompt: The common prompt, followed by goal and layer.
    """
    told = _named(layers, "layers")
    agents = [Agent(name, f"{prompt}\n\nGoal: {{{{ goal }}}}\nLayer: {text}") for name, text in told.items()]
    integrate = _joined(
        [*told], "integration", "Bring these layers in line, and name what does not fit.", "coordinator"
    )
    return Plan([*agents, integrate], {"goal": goal}, name="by_layer")


def by_phase(
    parts: Iterable[str] | Mapping[str, str], phases: Iterable[str] = PHASES, *, goal: str = "Improve this part."
) -> Plan:
    """Return a plan in which each part goes through phases independently of other parts.

    Args:
        parts: Names, or a mapping of names to descriptions.
        phases: The phases in order; each uses the previous answer.
        goal: The task for each part.
    """
    steps, agents = names_of(phases), list[Agent]()
    for name, text in _named(parts, "parts").items():
        before = ""
        for phase in steps:
            answer = f"\n\n{{{{ {before} }}}}" if before else ""
            before = _name(f"{phase}_{name}")
            asked = f"{phase.capitalize()}: {goal}\n\n{text}{answer}"
            agents.append(Agent(before, asked, role=ROLES_OF_PHASES.get(phase)))
    return Plan(agents, name="by_phase")


def by_module(package: str | Path, *, prompt: str = "Review this module.", role: str | None = None) -> Plan:
    """Return a plan with an agent per module of a package, which waits for the modules that its module imports.

    Modules that import each other share an agent. The modules are parsed, not run.

    Args:
        package: The folder of the package.
        prompt: The common prompt, followed by the modules' sources and the answers on imported ones; `{{ source }}`
            in it places the source.
        role: Their role.

    Raises:
        PlanError: It is no folder, it has no Python file, or one cannot be parsed.
    """
    folder = Path(package)
    if not folder.is_dir():
        message = f"package {str(package)!r} is not a folder. Give the folder of a package"
        raise PlanError(f"{message}; for an imported one, Path(package.__file__).parent.")
    paths = {_module(path, folder): path for path in _files(folder, _is_python)}
    sources = {name: _read(path) for name, path in paths.items()}
    dotted = _dotted(folder.resolve())
    inside = {name: [*dotted.split("."), *path.relative_to(folder).parts] for name, path in paths.items()}
    uses = {name: _imported(name, source, inside[name], dotted, sources) for name, source in sources.items()}
    reach = {name: _reached(name, uses) for name in uses}
    rings = list(dict.fromkeys(tuple(sorted({name, *(n for n in reach[name] if name in reach[n])})) for name in uses))
    home = {name: _name("_and_".join(one.replace(".", "_") for one in ring[:2])) for ring in rings for name in ring}
    agents, values = list[Agent](), dict[str, str]()
    for ring in rings:
        name = home[ring[0]]
        parents = dict.fromkeys(home[one] for member in ring for one in sorted(uses[member]) if one not in ring)
        values[f"source_of_{name}"] = "\n\n".join(f"# {one}\n{sources[one]}" for one in ring)
        told = "".join(f"\n\nOn {parent}, which it imports:\n{{{{ {parent} }}}}" for parent in parents)
        agents.append(Agent(name, f"{_with_source(prompt, name, f'source_of_{name}')}{told}", role=role))
    return Plan(agents, values, name="by_module", description=f"The modules of {folder.name}.")


def by_line(task: str) -> Plan:
    """Return a plan with the lines of a text as steps; see `analyse` for their order.

    Args:
        task: The text, a step per line.

    Raises:
        PlanError: The text has no steps.
    """
    lines = [words for line in task.splitlines() if (words := _BULLET.sub("", line).strip())]
    if not lines:
        raise PlanError("The task has no steps: write one per line.")
    agents = list[Agent]()
    for number, words in enumerate(lines, 1):
        after = tuple(one.name for one in agents) if _ORDER.match(words) else ()
        agents.append(Agent(f"step_{number}", words.replace("{", "(").replace("}", ")"), after=after))
    return Plan(agents, name="task")


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True, slots=True)
class Analysis:
    """The concurrency of a plan.

    Attributes:
        independent: Steps without parents.
        sequential: Steps with parents.
        shared: Values and resources used by several steps, by name.
        score: 1 minus the critical path over the total work: 0 is fully sequential, near 1 fully concurrent. `NaN` for
            a text that was not split.
        note: How to split a text that names no parts; else empty.
    """

    independent: tuple[str, ...]
    sequential: tuple[str, ...]
    shared: Mapping[str, tuple[str, ...]]
    score: float
    note: str = ""


def analyse(task: str | Plan, work_s: Mapping[str, float] | None = None) -> Analysis:
    """Return independent and sequential steps, shared values, and a concurrency score.

    Args:
        task: A plan; or a text with a step per line: a line that begins with then, next, after, finally, based on or
            using waits for all before it. A text of one line is not split: nothing is known of its parts.
        work_s: Seconds of each step; default 1 each.

    Raises:
        PlanError: The text has no steps, or `work_s` lacks a step.
    """
    plan = by_line(task) if isinstance(task, str) else task
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be("analyse", "a text or a Plan", plan, error=PlanError)
    users: dict[str, list[str]] = {}
    for step in plan.agents:
        for name in {*step.reads, *step.uses_resources, *step.writes} - {*plan.names, *plan.groups}:
            users.setdefault(name, []).append(step.name)
    is_split = not isinstance(task, str) or len(plan) > 1
    total = sum(work_s[name] for name in plan.names) if work_s else float(len(plan))
    length = plan.critical_path(work_s)[1]
    return Analysis(
        tuple(name for name in plan.names if not plan.parents(name)),
        tuple(name for name in plan.names if plan.parents(name)),
        {name: tuple(by) for name, by in sorted(users.items()) if len(by) > 1},
        math.nan if not is_split else (total - length) / total if total else 0.0,  # of 5 and 4 exactly 0.2
        "" if is_split else NOT_SPLIT,
    )


def _with_source(prompt: str, agent: str, value: str) -> str:
    """Put the value of a source in place of `{{ source }}`, or else behind the prompt."""
    asked = renamed_names(Template.parse(prompt, agent=agent), {"source": value})
    return asked if asked != prompt else f"{prompt}\n\n{{{{ {value} }}}}"


def _joined(names: Sequence[str], name: str = "joined", ask: str = JOIN, role: str = "synthesizer") -> Agent:
    answers = "\n\n".join(f"{{{{ {one} }}}}" for one in names)
    return Agent(name, f"{ask}\n\n{answers}", role=role)


def _named(given: Iterable[str] | Mapping[str, str], what: str) -> dict[str, str]:
    """Return texts by the names of their agents."""
    told = dict(cast("Mapping[str, str]", given)) if isinstance(given, Mapping) else {n: n for n in names_of(given)}
    if not told:
        raise must_be(what, "a list of at least one name", cast("object", given), error=PlanError)
    return {_name(name): text for name, text in told.items()}


def _name(words: str) -> str:
    name = re.sub(r"\W+", "_", str(words).lower()).strip("_") or "part"
    return name if name.isidentifier() and name not in RESERVED else f"part_{name}"


def _files(paths: str | Path | Iterable[str | Path], wanted: Callable[[Path], bool]) -> list[Path]:
    """Return the named files, and the wanted ones of folders."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[Path] = []
    for path in map(Path, several):
        inside = (one for one in sorted(path.rglob("*")) if not _is_hidden(one.relative_to(path)) and wanted(one))
        found += inside if path.is_dir() else [path]
    if not found:
        raise PlanError(f"No files: {', '.join(map(str, several)) or 'the list is empty'}. Name files, or a folder.")
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def _is_python(path: Path) -> bool:
    return path.suffix == ".py" and path.is_file()


def _is_text(path: Path) -> bool:
    """Return whether a file is UTF-8 text, which a model can be sent."""
    if not path.is_file():
        return False
    try:
        return "\0" not in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{Path(path).name!r} cannot be read as text: {error}.") from None


def _module(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _dotted(folder: Path) -> str:
    """Return the name that a package is imported by: with the packages around it."""
    names = [folder.name]
    while (folder := folder.parent) and (folder / "__init__.py").exists():
        names.insert(0, folder.name)
    return ".".join(names)


def _imported(name: str, source: str, home: list[str], package: str, known: Iterable[str]) -> set[str]:
    """Return the other modules of a package that one of them imports."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise PlanError(f"Module {name!r} is not valid Python: {error}.") from None
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = home[: len(home) - node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            named |= {base, *(f"{base}.{one.name}" for one in node.names)}
    inside = {one.removeprefix(f"{package}.") for one in named if one.startswith(f"{package}.")}
    return {one for one in inside if one in {*known}} - {name}


def _reached(name: str, uses: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, directly or not."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for one in uses[todo.pop()] - found:
            found.add(one)
            todo.append(one)
    return found
