"""Templates: which names a prompt uses, and the text it becomes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jinja2 import TemplateSyntaxError

from agent_magic.declare import Answers
from agent_magic.declare.template import Template, _render
from agent_magic.declare.values import RenderError, Row, as_item, as_text, sendable, value_notes
from agent_magic.errors import DeclarationError


def fill(text, **values):
    """Read a prompt and fill it in."""
    return Template.parse(text, agent="a").render(values).text


VERBATIM = [
    "plain",
    "",
    "trailing newline\n",
    "\n\n  indented\n\n",
    '{"json": {"a": [1, 2]}}'.replace("}}", "} }"),
    '{"a": {"b": 1}}',
    "{single} {0} {}",
    "printf('%d {%d} {%s}')",
    "${#list[@]} ${x%%y}",
    "f'{x!r:>{w}}'",
    "{# not a comment #}",
    "\\begin{a}{b}",
    "}} {",
    "a % b {",
    "null \0 byte",
    "emoji 👩‍👩‍👧 עברית\u202e",
    "{%random percent",
]


@pytest.mark.parametrize("text", VERBATIM, ids=ascii)
def test_a_prompt_without_names_goes_out_verbatim(text):
    """Single braces, JSON, code and printf formats are text."""
    template = Template.parse(text, agent="a")
    assert () == template.names
    assert text == template.render({}).text


@pytest.mark.parametrize("text", VERBATIM, ids=ascii)
def test_braces_around_names_stay_too(text):
    """The same holds for what stands beside names, on the fast path and in Jinja2."""
    assert f"{text}|1|{text}" == fill(f"{text}|{{{{ n }}}}|{text}", n=1)
    assert f"{text}|1|" == fill(f"{text}|{{{{ n }}}}|{{% if n %}}{{% endif %}}", n=1)


CASES = {
    "a name": ("{{ a }}", {"a": "x"}, "x"),
    "no blanks": ("{{a}}{{b}}", {"a": 1, "b": 2}, "12"),
    "many blanks": ("{{\n a\t}}", {"a": 1}, "1"),
    "inside JSON": ('{"k": {"v": {{ a }}}}', {"a": "[1]"}, '{"k": {"v": [1]}}'),
    "inside a LaTeX group": (r"\frac{{{ a }}}{2}", {"a": "x"}, r"\frac{x}{2}"),
    "a loop": ("{% for x in a %}{{ loop.index }}{{ x }} {% endfor %}", {"a": "pq"}, "1p 2q "),
    "a condition": ("{% if a %}yes{% else %}no{% endif %}", {"a": 0}, "no"),
    "an elif": ("{% if a == 1 %}1{% elif a == 2 %}2{% endif %}", {"a": 2}, "2"),
    "a filter": ("{{ a|upper }}", {"a": "x"}, "X"),
    "filters with arguments": ("{{ a|join(', ') }}", {"a": ["x", "y"]}, "x, y"),
    "an attribute": ("{{ a.real }}", {"a": 5}, "5"),
    "an item": ("{{ a['k'] }}{{ a.k }}", {"a": {"k": 1}}, "11"),
    "arithmetic": ("{{ a * 2 }}", {"a": 3}, "6"),
    "a method": ("{{ a.split(',')[1] }}", {"a": "x,y"}, "y"),
    "set": ("{% set b = a %}{{ b }}", {"a": 1}, "1"),
    "raw": ("{% raw %}{{ a }} {%d}{% endraw %}{{ b }}", {"b": 1}, "{{ a }} {%d}1"),
    "range": ("{% for i in range(3) %}{{ i }}{% endfor %}", {}, "012"),
    "white space control": ("x {{- a -}} y", {"a": 1}, "x1y"),
    "a printf beside a tag": ("{%d}{% if a %}{%s}{% endif %}", {"a": 1}, "{%d}{%s}"),
    "shell beside a tag": ("${#v}{% if a %}${v%%x}{% endif %}", {"a": 1}, "${#v}${v%%x}"),
    "macro": ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(a) }}", {"a": 1}, "<1>"),
    "trailing newline": ("{% if a %}x{% endif %}\n", {"a": 1}, "x\n"),
    "nothing escaped": ("{{ a }}{{ a|upper }}", {"a": "<&'\">"}, "<&'\"><&'\">"),
    "None": ("{{ a }}", {"a": None}, "None"),
}


@pytest.mark.parametrize(("text", "values", "expected"), CASES.values(), ids=CASES)
def test_templates_are_filled_in(text, values, expected):
    """The forms of Jinja2 that prompts use work; all other text stays."""
    assert expected == fill(text, **values)


NAMES = {
    "{{ b }}{{ a }}{{ b }}": ("b", "a"),
    "{{ b.x }} {{ a }}": ("b", "a"),
    "{% for x in rows %}{{ x }}{{ y }}{% endfor %}": ("rows", "y"),
    "{% set x = a %}{{ x }}": ("a",),
    "{% raw %}{{ a }}{% endraw %}": (),
    "{{ 'a' }}": (),
    "{% if a is defined %}{% endif %}": ("a",),
    "{{ none }}{{ true }}": (),
}


@pytest.mark.parametrize(("text", "names"), NAMES.items(), ids=NAMES)
def test_the_names_a_prompt_reads_are_known(text, names):
    """Names come in order of first use, those the prompt sets itself left out."""
    assert names == Template.parse(text, agent="a").names


SYNTAX = {
    "an open expression": ("one\ntwo {{ x + }}\nthree", 2, "two {{ x + }}"),
    "an empty condition": ("one\n\n{% if %}x{% endif %}", 3, "{% if %}x"),
    "an open block": ("one\n{% for x in y %}\nthree", 2, "endfor"),
    "an unknown tag": ("one\n{% foo %}", 2, "foo"),
    "an unknown filter": ("one\ntwo\n{{ a|nosuch }}", 3, "nosuch"),
    "a text that differs each time": ("one\n{{ a | random }}", 2, "random gives another text each time"),
    "include": ("one\n{% include 'x' %}", 2, "stands alone"),
    "import": ("one\n{% import 'x' as y %}", 2, "stands alone"),
    "from": ("{% from 'x' import y %}", 1, "stands alone"),
    "extends": ("{% extends 'x' %}", 1, "stands alone"),
    "include in a branch": ("{% if 1 %}\n\n{% include a %}{% endif %}", 3, "stands alone"),
    "three braces": ("{{{ a }}}{% if a %}{% endif %}", 1, "raw"),
}


@pytest.mark.parametrize(("text", "line", "said"), SYNTAX.values(), ids=SYNTAX)
def test_what_is_no_template_is_refused_with_its_line(text, line, said):
    """The message names the agent, the line and what is wrong, and how to send braces as they are."""
    with pytest.raises(DeclarationError, match=f"'writer' cannot be read in line {line},") as caught:
        Template.parse(text, agent="writer")
    assert said in str(caught.value)
    assert "{% raw %}" in caught.value.hint
    assert "writer" == caught.value.agent


def _function():
    """Stand for a function of the notebook."""


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ ''|attr('__class__') }}",
    "{{ f.__globals__ }}",
    "{{ f.__code__ }}",
    "{{ rows.append(4) }}",
    "{{ rows.clear() }}",
    "{{ table.update({1: 2}) }}",
    "{{ table.pop('k') }}",
    "{{ dict.mro() }}",
    "{{ dict.__base__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ self.__init__ }}",
    "{{ range(10000000)|list }}",
    "{% for x in loop.__class__ %}{% endfor %}",
    "{% set x = ''.__class__ %}{{ x.__bases__ }}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_the_sandbox_holds(text):
    """A template reaches neither Python's inside nor changes a value; trying is an error of ours."""
    rows, table = [1], {"k": 1}
    with pytest.raises(DeclarationError):
        fill(text, f=_function, rows=rows, table=table)
    assert ([1], {"k": 1}) == (rows, table)


class Odd:
    """A value of the user's whose methods fail in their own way."""

    class Wrong(Exception):
        """Of a class that nobody here knows."""

    def fails(self):
        """Fail."""
        raise self.Wrong("the door is open")

    def __str__(self):
        raise RuntimeError("no text")


FAILURES = {
    "a missing attribute": ("{{ a.b }}", {}),
    "a missing key, twice": ("{{ a.b.c }}", {}),
    "division by zero": ("{{ 1 / n }}", 0),
    "a wrong type": ("{{ n + 'x' }}", 0),
    "a frame in a condition": ("{% if n %}{% endif %}", pd.DataFrame({"x": [1, 2]})),
    "a wrong index": ("{{ [1][n] + 1 }}", 5),
    "too large": ("{{ 2.0 ** n }}", 5000),
    "a method of a value": ("{{ n.fails() }}", Odd()),
    "a value without a text": ("{{ n }}", Odd()),
}


@pytest.mark.parametrize(("text", "value"), FAILURES.values(), ids=FAILURES)
def test_an_expression_that_fails_is_a_declaration_error(text, value):
    """Whatever Python raises inside a template's expression comes out as one of ours."""
    with pytest.raises(DeclarationError, match=r"^The prompt of agent 'a' cannot be rendered: "):
        fill(text, a={}, n=value)


def test_an_error_of_the_users_own_keeps_its_name():
    """The message says what was raised, by its class too."""
    with pytest.raises(DeclarationError, match="Wrong: the door is open"):
        fill("{{ n.fails() }}", n=Odd())


TOO_LARGE = {
    "a repeated text": "{{ 'x' * 10 ** 10 }}",
    "a list repeated from the right": "{{ 10 ** 10 * [1] }}",
    "a list of long texts": "{{ ([n * 1000] * 10 ** 4)|length }}",
    "a tower of powers": "{{ 9 ** (9 ** (9 ** 9)) }}",
    "a repeated value": "{{ n * 10 ** 8 }}",
    "loops": "{% for a in range(9999) %}{% for b in range(9999) %}{{ n }}{% endfor %}{% endfor %}",
    "sums": "{% set b = n * 10 ** 5 %}" + "{% set b = b + b %}" * 30,
    "tildes": "{% set b = n * 10 ** 5 %}" + "{% set b = b ~ b %}" * 30,
    "blocks": "{% set b = n * 10 ** 5 %}" + "{% set b %}{{ b }}{{ b }}{% endset %}" * 30,
    "a macro": "{% macro f(a, i) %}{% if i %}{{ f(a ~ a, i - 1) }}{% endif %}{% endmacro %}{{ f(n, 60) }}",
    "center": "{{ 'a'.center(10 ** 9) }}",
    "ljust": "{{ 'a'.ljust(10 ** 9) }}",
    "zfill": "{{ 'a'.zfill(10 ** 9) }}",
    "expandtabs": "{{ '\t\t\t'.expandtabs(10 ** 9) }}",
    "replace": "{{ (n * 10 ** 5).replace('x', n) }}",
    "join": "{{ (n * 10 ** 5).join('abcdef') }}",
    "translate": "{{ n.translate({120: n * 10 ** 4}).translate({120: n}) }}",
    "fromkeys": "{{ dict.fromkeys(range(99999), n * 1000)|length }}",
    "a width": "{{ '%1000000000d' % 1 }}",
    "a width beside it": "{{ '%*d' % (10 ** 9, 1) }}",
    "a format": "{{ '{:1000000000}'.format(1) }}",
    "a width in a format": "{{ '{:>{w}}'.format(1, w=10 ** 9) }}",
    "many fields": "{{ ('%(a)s' * 100) % {'a': n * 10 ** 4} }}",
    "the filter center": "{{ 'a'|center(10 ** 9) }}",
    "the filter indent": "{{ 'a'|indent(10 ** 9, true) }}",
    "the filter format": "{{ '%1000000000d'|format(1) }}",
    "the filter join": "{{ 'abcdef'|join(n * 10 ** 5) }}",
    "the filter replace": "{{ (n * 10 ** 5)|replace('x', n) }}",
    "the filter batch": "{{ [1]|batch(10 ** 9, 1)|list|length }}",
    "many texts": "{{ range(10 ** 4)|map('string')|map('center', 10 ** 7)|list|length }}",
}


@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_template_takes_no_more_room_than_a_request(text):
    """S07: neither reading nor filling in a stranger's prompt fills the memory; the error says why it stopped."""
    with pytest.raises(DeclarationError, match="more than 32,000,000 characters"):
        fill(text, n="x" * 100)


class Unwritten(bytes):
    """Bytes that must not be written as text."""

    def __str__(self):
        raise AssertionError("it is too long to be written")


@pytest.mark.parametrize("text", ["{{ n }}", "{% if n %}{{ n }}{% endif %}"])
@pytest.mark.parametrize("value", ["x" * 32_000_001, Unwritten(32_000_001), ["x" * 1000] * 32_001], ids=type)
def test_a_value_longer_than_a_request_is_refused_early(text, value):
    """Before it is written as text, which could take as long as it takes room."""
    with pytest.raises(DeclarationError, match="a request has 32 MB at most"):
        fill(text, n=value)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{{ 'ab' * n }}", "ababab"),
        ("{{ n * 2 }}", "6"),
        ("{{ 2 ** n }}", "8"),
        ("{{ 2 ** -1 }}", "0.5"),
        ("{{ 1.5 * n }}", "4.5"),
        ("{{ '%05.1f%%' % n }}", "003.0%"),
        ("{{ '{:>{w}}'.format(n, w=3) }}", "  3"),
        ("{{ '%s and %s' % ('x' * 10 ** 6, n) }}", "x" * 10**6 + " and 3"),
        ("{{ '{:,} people'.format(n * 10 ** 9) }}", "3,000,000,000 people"),
        ("{{ ('a,' * 10 ** 6)|replace(',', '; ')|length }}", "3000000"),
        ("{{ ('line\n' * 10 ** 6)|indent(4)|length }}", "8999996"),
        ("{{ n ~ 'x' ~ (n + 1) }}", "3x4"),
        ("{{ 'ab'.center(6, '-') }}{{ 'x'|center(3) }}", "--ab-- x "),
    ],
)
def test_what_fits_is_multiplied(text, filled):
    """Products and powers are Python's."""
    assert filled == fill(text, n=3)


TOO_DEEP = {
    "twenty-five loops": "{% for a in b %}" * 25 + "{% endfor %}" * 25,
    "three thousand brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}


@pytest.mark.parametrize("text", TOO_DEEP.values(), ids=TOO_DEEP)
def test_a_template_too_deep_for_python_is_a_declaration_error(text):
    """Python's own limits on nesting come out as an error of ours."""
    with pytest.raises(DeclarationError):
        fill(text, b=[])


text_parts = st.one_of(
    st.text(alphabet="ab {}%#\n\r\t$\\\"'-+\0é😀|", max_size=8),
    st.text(max_size=5),
    st.sampled_from(["{{ a }}", "{{b}}", "{{\tc\n}}", "{{ größe }}", "{%d}", "{", "}}", "${#x}"]),
)
prompts = st.lists(text_parts, max_size=8).map("".join)
answers = st.text(alphabet="x{} %a\n\0é😀#", max_size=10)


@given(prompts, st.fixed_dictionaries(dict.fromkeys(["a", "b", "c", "größe"], answers)))
@example("{{ a }}{{ b }}", {"a": "{{ b }}", "b": "{% if %}", "c": "", "größe": ""})
def test_both_ways_of_filling_in_give_the_same_text(text, values):
    """Where Jinja2 can read a prompt of plain names, it gives the text of the fast path (which may read more)."""
    try:
        template = Template.parse(text, agent="a")
    except DeclarationError:
        assume(False)
    assume(template.simple and "\r" not in text and "\0{#" not in text)
    assume(set(template.names) <= set(values))
    try:
        slow = _render(text, values, values)
    except (RenderError, TemplateSyntaxError):
        return  # `{{{ a }}}` means `{`, a, `}` here, and nothing there
    assert sendable(slow) == template.render(values).text


@given(prompts.filter(lambda text: "{{" not in text and "{%" not in text))
def test_a_text_without_braces_is_itself(text):
    """Without `{{` and `{%` a prompt is text."""
    assert sendable(text) == fill(text)


def test_line_ends_stay_in_every_prompt():
    """Windows line ends and lone carriage returns go out as they are, with tags in the prompt too."""
    assert "a\r\nb\rc" == fill("a\r\nb\r{{ x }}", x="c")
    assert "a\r\nb\rc" == fill("a\r\nb\r{% if x %}c{% endif %}", x=1)


HOSTILE = ["{{ b }}", "{% for x in y %}", "{{ 1/0 }}", "{% raw %}", "{# #}", "{{ ''.__class__ }}"]


@pytest.mark.parametrize("answer", HOSTILE)
def test_an_answer_is_never_read_as_a_template(answer):
    """What a model wrote goes into the next prompt as text, on both ways."""
    assert f"<{answer}>" == fill("<{{ a }}>", a=answer, b="no")
    assert f"<{answer}>" == fill("{% if 1 %}<{{ a }}>{% endif %}", a=answer, b="no")


def test_a_frame_is_shown_as_csv_with_all_its_rows():
    """A DataFrame or a Series goes into a prompt whole, with its index where somebody chose one."""
    frame = pd.DataFrame({"x": range(100), "y": ["é"] * 100})
    assert frame.to_csv(index=False) == fill("{{ f }}", f=frame)
    assert frame.to_csv(index=False) == fill("{% if 1 %}{{ f }}{% endif %}", f=frame)
    named = frame.set_index("y")
    assert named.to_csv() == fill("{{ f }}", f=named)
    assert named["x"].to_csv() == fill("{{ f }}", f=named["x"])


def test_an_array_is_shown_whole():
    """An array goes into a prompt as a list of all its values."""
    assert str(list(range(2000))) == fill("{{ f }}", f=pd.Series(range(2000)).to_numpy())


@pytest.mark.parametrize("value", [len, lambda: 1, dict, pytest], ids=["builtin", "function", "class", "module"])
def test_what_has_no_text_is_refused(value):
    """A function, a class or a module in a prompt is a mistake, and is said to be one."""
    with pytest.raises(DeclarationError, match="has no text"):
        fill("{{ f }}", f=value)


@pytest.mark.parametrize(
    ("value", "said"),
    [(object(), "an address in memory"), ((one for one in "ab"), "read only once"), (iter([1]), "read only once")],
    ids=["object", "generator", "iterator"],
)
def test_an_address_in_memory_is_no_text(value, said):
    """It says nothing to a model, and would never be the same again, so that every answer was bought anew."""
    with pytest.raises(DeclarationError, match=said):
        fill("{{ f }}", f=value)


def test_a_text_that_looks_like_an_address_is_text():
    """Whoever debugs Python asks about such lines."""
    line = "<list_iterator object at 0x7fce153c9810>"
    assert line == fill("{{ f }}", f=line)
    assert f"['{line}']" == fill("{{ f }}", f=[line])


def test_an_index_is_written_whole_as_a_list():
    """As an array is: `str` would leave its middle out, and add its type."""
    assert str(list(range(500))) == as_text(pd.Index(range(500)))
    assert "['a', 'b']" == as_text(pd.Categorical(["a", "b"]))


@dataclass
class Point:
    """A value of a user's own."""

    x: int
    at: date


JSONS = {
    "letters": ({"é": '<it\'s & "so">'}, '{"é": "<it\'s & \\"so\\">"}'),
    "frame": (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), '[{"a": 1, "b": "x"}, {"a": 2, "b": null}]'),
    "series": (pd.Series([1, 2], index=["a", "b"]), '{"a": 1, "b": 2}'),
    "array": ([np.arange(2), np.float64(0.5), np.int64(3)], "[[0, 1], 0.5, 3]"),
    "dataclass": (Point(1, date(2020, 1, 2)), '{"x": 1, "at": "2020-01-02"}'),
    "tuple": ((1, None, True), "[1, null, true]"),
    "decimal": ([Decimal("1.10")], '["1.10"]'),
    "missing": ([pd.NA, pd.NaT, None], "[null, null, null]"),
    "timestamp": (pd.Timestamp("2020-01-02"), '"2020-01-02T00:00:00"'),
}


@pytest.mark.parametrize(("value", "text"), JSONS.values(), ids=JSONS)
def test_tojson_sends_json(value, text):
    """As people write it: no escapes of a web page, letters as they are, and what a notebook holds besides."""
    assert text == fill("{{ x | tojson }}", x=value)


def test_tojson_indents_and_refuses():
    """With lines where asked for; what has no JSON is a mistake that is named."""
    assert '{\n  "a": 1\n}' == fill("{{ x | tojson(indent=2) }}", x={"a": 1})
    with pytest.raises(DeclarationError, match="Path cannot be written as JSON"):
        fill("{{ x | tojson }}", x=Path())


PYTHON = {
    "dict": ({"a": 1}, "x is a dict and goes out as Python text: {{ x | tojson }} sends JSON"),
    "list": (["a"], "x is a list and goes out as Python text: {{ x | tojson }} sends JSON"),
    "tuple": ((1, 2), "x is a tuple and goes out as Python text: {{ x | tojson }} sends JSON"),
    "set": ({1}, "x is a set and goes out as Python text"),
    "bytes": (b"a", "x is of bytes and goes out as Python text, b'…': x.decode() is its own"),
    "numbers": ([1, 2.5], None),
    "array": (np.arange(3), None),
    "frame": (pd.DataFrame({"a": [1]}), None),
    "text": ("a", None),
    "row": (Row(a=1), None),
    "once": (iter("ab"), "x can be read only once, and a plan refuses it: x = list(x) keeps what it gives"),
    "path": (Path("a.png"), "x is a path: its name goes out, not the file. x = am.image(x) sends what is in it"),
}


@pytest.mark.parametrize(("value", "note"), PYTHON.values(), ids=PYTHON)
def test_what_goes_out_as_python_is_said(value, note):
    """A model reads it, few people mean it. What is the same in JSON, or has a text of its own, needs no word."""
    assert ([] if note is None else [note]) == value_notes(["x", "unknown"], {"x": value})


@pytest.mark.parametrize(
    ("text", "whole"),
    [("{{ a }} {{ b }}", ("a", "b")), ("{{ a.b }} {{ b | tojson }} {% if c %}{{ d }}{% endif %}", ("d",))],
)
def test_what_a_prompt_writes_whole(text, whole):
    """Parts of values, and what a filter makes of them, are what the user wants them to be."""
    assert whole == Template.parse(text, agent="a").whole


def test_only_frames_are_written_as_csv():
    """Any other object with a `to_csv` of its own is shown as `str` shows it."""

    class Thing:
        def to_csv(self):
            return "no"

        def __str__(self):
            return "yes"

    assert "yes" == as_text(Thing())


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=20))
@example("\ud83d\ude00")
@example("\ud800")
@example("a\0b")
@example("\udc00\ud800")
def test_every_prompt_can_be_sent(text):
    """What goes out is valid UTF-8; a text that was stays as it is; halves of a pair are joined."""
    sent = fill("{{ a }}", a=text)
    assert sent == sent.encode().decode()
    if not re.search("[\ud800-\udfff]", text):
        assert text == sent


def test_halves_of_an_emoji_are_joined():
    """Two surrogates that belong together become their character, a lone one `U+FFFD`."""
    assert "😀" == sendable("\ud83d\ude00")
    assert "\ufffd" == sendable("\ud83d")
    assert "x😀\ufffd" == fill("x{{ a }}{% if 1 %}{% endif %}", a="\ud83d\ude00\ud800")


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=20).map(sendable))
def test_mending_twice_changes_nothing(text):
    """A text that can be sent is not touched."""
    assert text == sendable(text)


def test_two_megabytes_are_filled_in():
    """A long value goes into a prompt whole."""
    long = "x" * 2_000_000
    assert f"<{long}>" == fill("<{{ a }}>", a=long)


LONG = np.arange(2000)


@dataclass
class Fit:
    """What a task may return."""

    curve: object


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ x }}", Row(curve=LONG)),
        ("{{ x }}", {"curve": LONG}),
        ("{{ x }}", [1, ("two", {"curve": LONG})]),
        ("{{ x }}", pd.DataFrame({"id": [1], "curve": [LONG]})),
        ("{{ x }}", pd.DataFrame({"id": [1], "curve": [{"deep": [LONG]}]})),
        ("{{ x }}", pd.Series([LONG, "text"])),
        ("{{ x }}", Row(curve=pd.Series(LONG))),
        ("{{ x }}", Row(curve=pd.DataFrame({"y": LONG}))),
        ("{{ x }}", Answers([{"curve": LONG}, LONG])),
        ("{{ x }}", Fit(LONG)),
        ("{{ x ~ '.' }}", LONG),
        ("{{ x | string }}", {"curve": LONG}),
        ("{{ [x, x] | join(', ') }}", LONG),
        ("{{ x | tojson }}", Row(curve=LONG)),
        ("{{ x.a }}", Row(a={"curve": LONG})),
    ],
)
def test_nothing_inside_a_value_is_left_out(text, value):
    """Arrays and frames in rows, cells, lists and dicts are written whole, as they are alone."""
    found = fill(text, x=value)
    assert {*map(str, range(2000))} <= {*re.findall(r"\d+", found)}
    assert "..." not in found


def test_an_array_in_a_dict_is_the_list_that_it_is_alone():
    """It is written by what writes it alone, and what holds no array is Python's own text."""
    value = {"curve": np.array([1, 2]), "it": {"s": "a\nb"}}
    assert "{'curve': [1, 2], 'it': {'s': 'a\\nb'}}" == fill("{{ x }}", x=value)
    assert "a: [0.1, 0.2]\nb: None" == fill("{{ x }}", x=Row(a=np.array([0.1, 0.2]), b=None))


@pytest.mark.parametrize("name", ["items", "values", "keys", "get", "copy", "pop", "update", "clear"])
def test_a_column_wins_over_a_method_of_its_name(name):
    """A row's columns may be called as dicts' methods are; without such a column the method is there."""
    assert "a cell" == fill(f"{{{{ x.{name} }}}}", x=Row({name: "a cell"}))
    assert "k=v" == fill("{% for k, v in x.items() %}{{ k }}={{ v }}{% endfor %}", x=Row(k="v"))


def test_a_column_without_a_name_is_its_number():
    """`item[0]` is what a frame without names has there."""
    row = as_item({0: "first", 1: "second"})
    assert "first second first" == fill("{{ x[0] }} {{ x[1] }} {{ x['0'] }}", x=row)
    with pytest.raises(DeclarationError):
        fill("{{ x[2] }}", x=row)


def test_numpy_may_be_half_imported_meanwhile(monkeypatch):
    """A thread warms the libraries up while the first prompts are written."""
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    assert "1 Fit(curve=2)" == fill("{{ x }} {{ y }}", x=1, y=Fit(2))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("{% if fix.ok %}{{ fix.notes }}{% else %}none{% endif %}", "none"),
        ("{{ fix.notes or 'none' }}", "none"),
        ("{{ fix['notes'][0] | default('none') }}", "none"),
        ("{% if fix.notes is defined %}{{ fix.notes }}{% endif %}none", "none"),
        ("{% if not fix.ok %}none{% endif %}", "none"),
    ],
)
def test_who_asks_about_a_field_can_do_without_its_step(text, written):
    """As who asks about the step itself: it may have been skipped, and has no field then."""
    template = Template.parse(text, agent="a")
    assert {"fix"} == template.can_miss
    assert written == template.render({}).text
    with pytest.raises(DeclarationError, match="fix"):
        Template.parse("{{ fix.ok }}" + text, agent="a").render({})
