"""Where `await` is put into the text of a cell. What IPython makes of it is tested with real kernels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_magic.notebook import AwaitRewriter

RUN = "get_ipython().run_line_magic('agents', 'run')"
AWAITED = "(await get_ipython().run_line_magic('agents.async', 'run'))"
CELL = "get_ipython().run_cell_magic('agents', '', 'text\\n')"
AWAITED_CELL = "(await get_ipython().run_cell_magic('agents.async', '', 'text\\n'))"


def rewriter(**changes):
    """Return a rewriter on a stand-in for the shell."""
    ip = SimpleNamespace(
        autoawait=True, loop_runner="asyncio", input_transformers_post=[], find_magic=lambda _, kind: kind
    )
    return AwaitRewriter(**{"ip": ip, "magics": frozenset({"agents"}), **changes})


REWRITTEN = {
    "a statement": ("{}\n", RUN),
    "a cell magic": ("{}\n", CELL),
    "assigned": ("run = {}\n", RUN),
    "assigned twice": ("a = b = {}\n", RUN),
    "unpacked": ("a, *b = {}\n", RUN),
    "an argument": ("print({}, sep='')\n", RUN),
    "an attribute of it": ("{}.agents\n", RUN),
    "in if and else": ("if x:\n    {0}\nelse:\n    {0}\n", RUN),
    "in for and while": ("for i in y:\n    while x:\n        {}\n", RUN),
    "in with": ("with x:\n    {}\n", RUN),
    "in try": ("try:\n    {0}\nexcept E:\n    {0}\nfinally:\n    {0}\n", RUN),
    "in match": ("match x:\n    case 1:\n        {}\n", RUN),
    "in async def": ("async def f():\n    return {}\n", RUN),
    "in async def in def": ("def f():\n    async def g():\n        return {}\n", RUN),
    "in a comprehension": ("[{} for i in y]\n", RUN),
    "after letters of several bytes": ("s = 'é€😀'; run = {}\n", RUN),
    "after a form feed in a string": ("s = 'a\x0cb'\nrun = {}\n", RUN),
    "after a line separator in a string": ("s = 'a\u2028b'\nrun = {}\n", RUN),
    "with Windows line ends": ("x = 1\r\nrun = {}\r\n", RUN),
    "two in a line": ("{0}; {0}\n", RUN),
    "without a last line end": ("{}", RUN),
    "awaits something else too": ("await other()\n{}\n", RUN),
}

UNTOUCHED = {
    "in def": f"def f():\n    return {RUN}\n",
    "in lambda": f"f = lambda: {RUN}\n",
    "in class": f"class A:\n    x = {RUN}\n",
    "in a generator expression": f"g = ({RUN} for i in y)\n",
    "in an f-string": f'f"{{{RUN}}}"\n',
    "a default of def in def": f"def f():\n    async def g(x={RUN}):\n        pass\n",
    "a default of lambda": f"f = lambda x={RUN}: x\n",
    "another magic": "get_ipython().run_line_magic('time', 'agents')\n",
    "another object's method": "shell.run_line_magic('agents', 'run')\n",
    "a shell command": "get_ipython().system('agents run')\n",
    "a help request": "get_ipython().run_line_magic('pinfo', 'agents run')\n",
    "a string that says it": f"s = '''{CELL}'''\n".replace("'agents'", '"agents"'),
    "a syntax error": f"{RUN}\nx = = 1\n",
    "a null byte": f"{RUN}\n\0",
    "a return outside a function": f"{RUN}\nreturn\n",
}


@pytest.mark.parametrize(("text", "call"), REWRITTEN.values(), ids=REWRITTEN)
def test_a_chosen_call_is_awaited_where_await_is_legal(text, call):
    """Every call of a chosen magic at a place where `await` is legal is awaited, and nothing else changes."""
    awaited = AWAITED if call == RUN else AWAITED_CELL
    assert text.format(awaited) == rewriter().rewrite(text.format(call))


@pytest.mark.parametrize("text", UNTOUCHED.values(), ids=UNTOUCHED)
def test_everything_else_stays_as_it_is(text):
    """Where `await` is an error or would change the meaning, the text stays as it is."""
    assert text == rewriter().rewrite(text)


def test_a_call_that_the_cell_awaits_is_not_awaited_twice():
    """A call under the user's own `await` only changes to the asynchronous twin."""
    assert AWAITED[1:-1] == rewriter().rewrite(f"await {RUN}")


def test_an_expression_of_many_terms_is_read():
    """A cell nested deeper than Python's recursion limit is rewritten or left, never an error."""
    text = f"x = {'1 + ' * 900}1\nrun = {RUN}\n"
    assert rewriter().rewrite(text) in {text, text.replace(RUN, AWAITED)}


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("'run --fresh'", "run --fresh"),
        ("''", ""),
        ("'run --model {model}'", "run --model {model}"),
        ("'{verb} x'", None),
        ("' $verb'", None),
        ("line", None),
        ("'r' + 'un'", None),
    ],
)
def test_the_owner_chooses_by_the_line(line, asked):
    """The owner is asked with the line of the call, or with `None` if its first word is known only at run time."""
    questions = []
    chooser = rewriter(wanted=lambda *question: questions.append(question))
    text = f"get_ipython().run_line_magic('agents', {line})\n"
    assert text == chooser.rewrite(text)
    assert [("agents", asked)] == questions


@pytest.mark.parametrize("changes", [{"autoawait": False}, {"loop_runner": "trio"}], ids=str)
def test_nothing_is_awaited_where_ipython_would_not_await_on_asyncio(changes):
    """With `%autoawait off`, or another library's loop, the blocking twin runs."""
    hook = rewriter()
    vars(hook.ip).update(changes)
    assert [RUN] == hook([RUN])


def test_lines_come_back_as_lines():
    """A transformer gives IPython the lines it got, with their ends."""
    assert ["x = 1\n", f"{AWAITED}\n"] == rewriter()(["x = 1\n", f"{RUN}\n"])


def test_installing_twice_leaves_one_hook():
    """Installing and uninstalling are idempotent, for equal rewriters too, and leave the hooks of others."""
    first, other = rewriter(), lambda lines: lines
    first.ip.input_transformers_post.append(other)
    second = rewriter(ip=first.ip)
    first.install()
    first.install()
    second.install()
    assert [other, first] == first.ip.input_transformers_post
    second.uninstall()
    second.uninstall()
    assert [other] == first.ip.input_transformers_post
