"""A run as one HTML file: pictures, numbers, prompts and answers, what-ifs, and the recording itself.

Texts by people and models are escaped or safe Markdown, and the page's policy forbids all other scripts and requests.
A page that answers what-ifs contains the run, texts replaced by their lengths, and the forecasting modules, so later
releases do not change its answers.
"""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import importlib.util
import io
import json
import lzma
import re
import tarfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import quote, urlsplit

from agent_magic.declare.agent import Agent
from agent_magic.declare.declared import declared_names
from agent_magic.declare.options import option
from agent_magic.declare.plan import Plan
from agent_magic.declare.plan_json import outline_of, plan_from_dict
from agent_magic.declare.validation import must_be
from agent_magic.errors import AgentMagicError
from agent_magic.forecast.evidence import policy_of, sent_ahead
from agent_magic.machine import PYODIDE
from agent_magic.measure.frames import agents_frame
from agent_magic.providers.recorded import LONGEST_S, Deck
from agent_magic.record.cassette.reading import ENDING, read_cassette
from agent_magic.record.cassette.writing import check_for_secrets, filler, only_hash, only_length, write_cassette
from agent_magic.record.codec import to_json
from agent_magic.record.display import clean, single_line
from agent_magic.record.files import check_folder, check_regular, real_path, write_bytes
from agent_magic.record.prices import Prices
from agent_magic.record.results import capped_steps
from agent_magic.show.charts.timeline import run_timeline
from agent_magic.show.explore import OTHERS
from agent_magic.show.frames import frame_bundle
from agent_magic.show.graph import static_bundle
from agent_magic.show.markup import element, escape
from agent_magic.show.notes import closing, ending_notes
from agent_magic.show.states import STATES, states_of, unmet
from agent_magic.show.text import listed, result_facts, run_line
from agent_magic.show.theme import PAGE_CSS, PRE, built, variables
from agent_magic.show.values import markdown_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd

    from agent_magic.record.results import AgentResult, RunRecord

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_PLACE: Final = re.compile(r"(https?://[\w.-]+(:\d+)?/)?[\w./@~%+-]+")
MOST_LAST: Final = 3
HARMLESS: Final = " /=:;,()"
"""Characters that need no escape in an address within an attribute."""
CSS: Final = (
    f":root{{color-scheme:light dark;{variables('light')}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
    ":root{--jp-ui-font-color1:var(--am-ink);--jp-ui-font-color2:var(--am-soft);--jp-border-color2:var(--am-line)}"
    "body{margin:0 auto;padding:24px 20px 60px;max-width:1080px;background:var(--am-ground);color:var(--am-ink);"
    "font:15px/1.55 Inter,'Segoe UI',system-ui,'Helvetica Neue',Arial,sans-serif}"
    "h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 8px}"
    "img{display:block;max-width:100%;height:auto}"
    "figure{margin:16px 0;overflow-x:auto}figure img{min-width:640px}"
    ".soft{color:var(--am-soft)}.fail{color:var(--am-fail)}"
    "details{margin:4px 0;padding:6px 12px;border:1px solid var(--am-line);border-radius:8px;background:var(--am-card)}"
    "details details{border:0;padding:4px 0;background:none}summary{cursor:pointer}"
    ".answer{overflow-wrap:anywhere}.answer table{border-collapse:collapse}"
    ".answer :is(td,th){border-bottom:1px solid var(--am-line);padding:2px 10px 2px 0;text-align:left}"
    ".answer :is(h1,h2,h3){font-size:16px;margin:14px 0 4px}a{color:var(--am-run)}"
    ".am-value details{padding:0;border:0;background:none}"
    "#am-ask{margin:12px 0}#am-ask .am-about{margin-left:12px;color:var(--am-soft);font-size:13px}"
    "#am-ask>.am-button{font:inherit;padding:6px 16px;border:1px solid var(--am-run);border-radius:6px;"
    "background:var(--am-run);color:var(--am-ground);cursor:pointer}#am-ask>.am-button:disabled{opacity:.6}"
    "@media(max-width:560px){body{padding:16px 12px 40px;font-size:14px}}"
)


class Asking(NamedTuple):
    """What answers what-ifs; `python` is Pyodide's address, or a folder beside the page."""

    python: str
    run: str
    engine: str

    @property
    def policy(self) -> str:
        place = self.python if urlsplit(self.python).scheme else "'self'"
        return f"; script-src '{_fingerprint()}' 'wasm-unsafe-eval' {place}; worker-src blob:; connect-src {place}"

    @property
    def markup(self) -> str:
        """The place of the button; without scripts it is a sentence."""
        where = urlsplit(self.python).hostname or "beside it"
        about = f"Python is loaded into this page once (about 6 MB, from {where}), and answers here: nothing is sent."
        return f"<h2>What if?</h2>{element('div', escape(about), id='am-ask', data_python=self.python)}"

    @property
    def scripts(self) -> str:
        texts = {"am-run": self.run, "am-engine": self.engine}
        data = (f'<script type="application/octet-stream" id="{name}">{text}</script>' for name, text in texts.items())
        return "".join([*data, f'<script type="module">{_script()}</script>'])


def python_place(given: str) -> str:
    if not isinstance(given, str) or not _PLACE.fullmatch(given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be("python", "a folder beside the page, or an address of Pyodide", given, f" Such as {PYODIDE!r}.")
    return given if given.endswith("/") else f"{given}/"


@functools.cache
def _script() -> str:
    return built("ask.js")


@functools.cache
def _fingerprint() -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()}"


def run_page(
    record: RunRecord,
    *,
    name: str,
    cassette: bytes,
    texts: bool = True,
    scenarios: pd.DataFrame | None = None,
    asking: Asking | None = None,
    prices: Prices | None = None,
) -> str:
    """Write a redacted run, without script unless `asking`."""
    title = escape(heading_of(record))
    began = f"{record.began_at:%Y-%m-%d}"
    about = began + (" · simulated responses" if record.simulated else "")
    ended = closing(record, prices=prices).text().partition("\n")[0]
    notes = ending_notes(record, policy_of(record)[0]) if texts else []  # a tool's error is a text
    parts = [
        f'<h1>{title}</h1><div class="soft">{escape(run_line(record))} · {about}</div>',
        _figure(static_bundle(record.plan, record)),
        f"<p>{escape(ended)}</p>",
        *(f"<p>{escape(note)}</p>" for note in notes if note),
        "" if asking is None else asking.markup,
        "<h2>Time</h2>",
        _figure(run_timeline(record).bundle()),
        "<h2>Agents</h2>",
        frame_bundle(agents_frame(record))["text/html"],
    ]
    if scenarios is not None:
        parts += ["<h2>What it would have cost and taken</h2>", frame_bundle(scenarios)["text/html"]]
        parts += ['<p class="soft">Forecast from what was recorded. Nothing was sent.</p>']
    if texts:
        steps = zip(record.results, states_of(record), strict=True)
        capped = capped_steps(record)
        words = {
            one.name: " · ".join(filter(None, [STATES[state].word, unmet(capped.get(number))]))
            for number, (one, state) in enumerate(steps)
        }
        parts += ["<h2>Prompts and answers</h2>", *(_agent(record, one, words[one.name]) for one in record.rows)]
    parts += ["<h2>The recording</h2>", _recording(name, cassette)]
    policy, css, scripts = POLICY, f"{CSS}{PAGE_CSS}", ""
    if asking is not None:
        policy, css, scripts = f"{policy}{asking.policy}", f"{css}{built('explore.css')}", asking.scripts
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>{title} · {began}</title><style>{css}</style>'
    )
    body = f"<main>{''.join(parts)}</main>{scripts}"
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def heading_of(record: RunRecord) -> str:
    plan = record.plan
    if plan.description:
        return single_line(f"{plan.name}: {plan.description}")
    needed = {parent for parents in plan.dag.parents for parent in parents}
    last = dict.fromkeys(name for number, name in enumerate(declared_names(plan)) if number not in needed)
    return single_line(f"{plan.name}: {listed(list(last), MOST_LAST)}")


def _figure(bundle: dict[str, str]) -> str:
    """Show a picture as an image, so that nothing in it can be part of the page."""
    source = f"data:image/svg+xml,{quote(bundle['image/svg+xml'], safe=HARMLESS)}"
    words = f'<details><summary class="soft">as text</summary><pre style="{PRE}">{escape(bundle["text/plain"])}</pre>'
    label = bundle["text/plain"].partition("\n")[0]
    return f"<figure>{element('img', src=source, alt=label)}</figure>{words}</details>"


def _agent(record: RunRecord, result: AgentResult, word: str) -> str:
    facts = " · ".join([word, *result_facts(result, record.source_at(record.plan.index[result.name]))])
    step = record.plan[result.name]
    asked = step.prompt if isinstance(step, Agent) and not record.redacted else ""
    prompt = f'<details><summary class="soft">prompt</summary><pre style="{PRE}">{escape(clean(asked))}</pre></details>'
    error = f'<p class="fail">{escape(single_line(result.error))}</p>' if result.error else ""
    value = result.is_task or step.returns is not None
    answer = f'<pre style="{PRE}">{escape(clean(result.text))}</pre>' if value else markdown_html(clean(result.text))
    summary = f'<summary><b>{escape(single_line(result.name))}</b> <span class="soft">{escape(facts)}</span></summary>'
    return f'<details>{summary}{error}<div class="answer">{answer}</div>{prompt if asked else ""}</details>'


def _recording(name: str, cassette: bytes) -> str:
    data = f"data:application/octet-stream;base64,{base64.b64encode(cassette).decode()}"
    link = element("a", escape(name), download=name, href=data)
    size = f"{len(cassette) / 1e3:,.0f} KB"
    how = f"%agents replay {name}"
    return (
        f"<p>{link} ({size}) replays this run in a notebook that declares the same agents, without a key: "
        f"<code>{escape(how)}</code></p>"
    )


def write_page(
    record: RunRecord,
    path: str | Path,
    scenarios: pd.DataFrame | None,
    *,
    redact: Callable[[str], str] | None,
    allow: Iterable[str],
    python: str | None,
    prices: Prices | None,
) -> Path:
    """Write a run as one HTML file atomically; raise `SecretFound` before anything is written.

    The page shows the redacted recording played back, so replaced texts cannot be in it.
    """
    file = real_path(path, AgentMagicError)
    check_folder(file, AgentMagicError)
    check_regular(file, AgentMagicError)
    place = None if python is None or scenarios is None else python_place(python)
    check_for_secrets([record], file.name, allow=allow, redact=redact)
    with TemporaryDirectory() as folder:
        cassette = Path(folder) / "run.cassette.jsonl"
        write_cassette(record, cassette, redact=redact)
        data, deck = cassette.read_bytes(), Deck(read_cassette(cassette))
    shown = record if redact is None else deck.play(record.plan, timeout_s=LONGEST_S)
    name = file.stem + ENDING
    asking = None
    if place is not None:
        asking = Asking(place, pack_run(record, prices), pack_engine(templates=needs_templates(record.plan)))
    more: Any = {"texts": redact is not only_hash, "scenarios": scenarios, "asking": asking, "prices": prices}
    page = run_page(shown, name=name, cassette=data, **more)
    try:
        write_bytes(file, [page.encode()])
    except OSError as error:
        why = f"{file.name!r} cannot be written: {error.strerror}. Choose another place."
        raise AgentMagicError(why) from None
    return Path(path).expanduser()


ENTRY: Final = "agent_magic.show.explore"
PACKAGE: Final = ENTRY.partition(".")[0]
SANDBOX: Final = "agent_magic.declare.sandbox"
TEMPLATES: Final = ("jinja2", "markupsafe")
UNUSED: Final = {"constants", "ext", "nativetypes"}
OF_TEXT: Final = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}


def pack_run(record: RunRecord, prices: Prices | None = None) -> str:
    """Return base64 text; texts are replaced by their lengths."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.cassette.jsonl"
        write_cassette(record, file, redact=only_length)
        recording = file.read_text(encoding="utf-8")
    book = prices or Prices(tell=lambda _: None)
    models = sorted({*OTHERS, *record.facts.models, *(one.model for one in record.results)} - {""})
    data = {
        "plan": _outline(record),
        "recording": recording,
        "prices": {model: to_json(book.tariff_of(model)) for model in models},
    }
    return base64.b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()


def _outline(record: RunRecord) -> Any:
    """Return an outline in which prompts that were never sent have their expected length."""
    plain, ahead = outline_of(record.plan, only_length), dict[int, str]()
    outline = plan_from_dict(plain, Plan)
    for number, result in enumerate(record.results):
        if not result.attempts and not result.is_task and result.status != "unused":
            sent, less = (sent_ahead(plan, record, number)[0] for plan in (record.plan, outline))
            characters = len(sent) - len(less) + 1
            size = len(sent.encode(errors="replace")) - len(less.encode(errors="replace")) + 1
            ahead[number] = filler(characters, size) if 0 < characters <= size <= 4 * characters else "."
    return outline_of(record.plan, only_length, ahead) if ahead else plain


def needs_templates(plan: Plan) -> bool:
    """True if the plan's conditions or optional names need Jinja2."""
    return any(one.when or one.until or (not one.is_task and one.cascade) for one in plan.agents) or any(
        one.can_miss for one in plan.agents
    )


@functools.lru_cache(maxsize=2)
def pack_engine(*, templates: bool = False) -> str:
    """Return base64 of a `tar.xz` to unpack on Python's path."""
    files = dict(_modules(*([ENTRY, SANDBOX] if templates else [ENTRY])))
    for name in TEMPLATES if templates else ():
        folder = Path(_origin(name)).parent
        wanted = [file for file in folder.glob("*.py") if file.stem not in UNUSED]
        files |= {f"{name}/{file.name}": file.read_text(encoding="utf-8") for file in wanted}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, source in sorted(files.items()):
            entry, data = tarfile.TarInfo(name), ast.unparse(_Lean().visit(ast.parse(source))).encode()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return base64.b64encode(lzma.compress(made.getvalue(), filters=[OF_TEXT])).decode()


TYPING: Final = {"TYPE_CHECKING", "t.TYPE_CHECKING"}
_Scope = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class _Lean(ast.NodeTransformer):
    """Removes docstrings and type hints, half of a module; annotations of fields stay."""

    _in_function = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node, in_function=False)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if not self._in_function:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else ast.Pass()

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node.targets[0]) == "__all__" else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == cast.__name__:
            return self.visit(node.args[1])
        if isinstance(node.func, ast.Name) and node.func.id == option.__name__:
            node.keywords = [one for one in node.keywords if one.arg not in {"doc", "help", "unit", "note"}]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        given, node.returns = node.args, None
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if one is not None:
                one.annotation = None
        return self._inside(node, in_function=True)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` looks for

    def _inside(self, node: _Scope, *, in_function: bool) -> ast.AST:
        before, self._in_function = self._in_function, in_function
        self.generic_visit(node)
        self._in_function = before
        node.body = node.body or [ast.Pass()]
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse or ast.Pass() if ast.unparse(node.test) in TYPING else node


def _modules(*entries: str) -> Iterator[tuple[str, str]]:
    root, seen, todo = Path(_origin(PACKAGE)).parent.parent, set[Path](), [*entries]
    while todo:
        name = todo.pop()
        parts = name.split(".")
        todo += [".".join(parts[:depth]) for depth in range(1, len(parts))]
        place = root.joinpath(*parts)
        file = next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.is_file()), None)
        if parts[0] != PACKAGE or file is None or file in seen:  # a name in a module is no file
            continue
        seen.add(file)
        source = file.read_text(encoding="utf-8")
        yield file.relative_to(root).as_posix(), source
        todo += _imported(ast.parse(source))


def _imported(tree: ast.Module) -> Iterator[str]:
    todo: list[Any] = [*tree.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.ClassDef) or (isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING"):
            todo += node.body


def _origin(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return spec.origin
