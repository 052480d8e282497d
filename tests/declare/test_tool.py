"""Tools: what a model is told of a function, and how its arguments are read."""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import json
import pickle
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from agent_magic import ServerTool, Tool, tool
from agent_magic.declare import tools_of
from agent_magic.declare.answers.schema import MOST_OPTIONAL, MOST_UNIONS, counted
from agent_magic.declare.tool import MOST_STRICT
from agent_magic.errors import DeclarationError, InvalidArguments
from agent_magic.simulator.tools import check_schema

KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Colour(enum.Enum):
    RED = "Red"
    BLUE = "Blue"


class Point(BaseModel):
    x: int
    y: float = 0.0

    @field_validator("x")
    @classmethod
    def small(cls, x):
        """Refuse large ones in the worst way."""
        if x > 100:
            raise SystemExit("from a validator")
        return x


class Pair(TypedDict):
    left: str


@dataclass
class Box:
    width: int


class Tree(BaseModel):
    name: str
    kids: list[Tree] = []


def search(text: str, limit: int = 5, colour: Colour = Colour.RED) -> str:
    """Search the shop.

    Goes through all of it.

    Args:
        text: What to look for.
        limit: How many to return.
        colour: Of which colour.

    Returns:
        The names found.
    """
    return f"{text} {limit} {colour}"


class Shop:
    """A shop that can be asked."""

    def __call__(self, item: str) -> str:
        """Find an item."""
        return item

    def price(self, item: str) -> float:
        """Return the price of an item."""
        return len(item)

    async def order(self, item: str, *, number: int = 1) -> str:
        """Order an item."""
        return item * number


def schema_of(function) -> dict[str, Any]:
    """Return what the model is told of the arguments."""
    return Tool.of(function).definition()["input_schema"]


def test_a_definition_says_what_the_docstring_says():
    """Name, text and each parameter come from the function; the schema is one that the API takes."""
    definition = Tool.of(search).definition()
    assert "search" == definition["name"]
    assert "Search the shop.\n\nGoes through all of it.\n\nReturns: The names found." == definition["description"]
    assert definition["strict"]
    schema = definition["input_schema"]
    assert {"type": "string", "description": "What to look for."} == schema["properties"]["text"]
    assert ["text"] == schema["required"]
    assert ["Red", "Blue"] == schema["properties"]["colour"]["enum"]
    assert schema["additionalProperties"] is False
    check_schema(schema)


def google(a: int):
    """Do.

    Args:
        a: the a
    """


def numpy(a: int):
    """Do.

    Parameters
    ----------
    a : int
        the a
    """


def sphinx(a: int):
    """Do.

    :param a: the a
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstrings_of_all_styles_are_read(function):
    """Google, NumPy and Sphinx name parameters each in their way."""
    assert "the a" == schema_of(function)["properties"]["a"]["description"]
    assert "Do." == Tool.of(function).description


@pytest.mark.parametrize(
    ("function", "name", "parameters"),
    [
        (functools.partial(search, "tea"), "search", ["limit", "colour"]),
        (functools.partial(search, colour=Colour.BLUE), "search", ["text", "limit"]),
        (functools.partial(functools.partial(search, limit=1), text="tea"), "search", ["colour"]),
        (Shop(), "Shop", ["item"]),
        (Shop().price, "price", ["item"]),
        (Shop().order, "order", ["item", "number"]),
        (functools.partial(Shop().order, number=2), "order", ["item"]),
    ],
)
def test_whatever_can_be_called_can_be_a_tool(function, name, parameters):
    """Partials, whose bound arguments the model never sees, objects with `__call__`, bound methods."""
    made = Tool.of(function)
    assert name == made.name
    assert parameters == list(schema_of(function)["properties"])
    assert made.description


def described(
    a: Annotated[int, Field(description="from the field", ge=1)], json: str = "", _b: Literal["x", "y"] = "x"
):
    """Have any name."""


def test_annotations_speak_first_and_any_name_will_do():
    """`Field` beats the docstring; names that pydantic would refuse for a field are fine for a parameter."""
    properties = schema_of(described)["properties"]
    assert "from the field {minimum: 1}" == properties["a"]["description"]
    assert {"json": "{}", "_b": "y", "a": 1} == Tool.of(described).arguments('{"a":1,"json":"{}","_b":"y"}')
    with pytest.raises(InvalidArguments, match="a: Input should be greater than or equal to 1"):
        Tool.of(described).arguments('{"a": 0}')


def loose(point: Point, counts: dict[str, int], pair: tuple[int, str], tree: Tree, anything: Any = None):
    """Take what no grammar holds."""


def test_what_no_grammar_holds_is_sent_as_it_is():
    """Dicts, tuples and classes that hold themselves are no `strict` tools, and are checked when they are here."""
    made = Tool.of(loose)
    assert "strict" not in made.definition()
    given = {"point": {"x": 1}, "counts": {"a": 2}, "pair": [1, "b"], "tree": {"name": "t", "kids": [{"name": "u"}]}}
    found = made.arguments(json.dumps(given))
    assert {"a": 2} == found["counts"]
    assert (1, "b") == found["pair"]
    assert "u" == found["tree"].kids[0].name
    with pytest.raises(InvalidArguments, match=r"counts\.a: Input should be a valid integer"):
        made.arguments(json.dumps(given | {"counts": {"a": "x"}}))


def typed(point: Point, box: Box, pair: Pair, colour: Colour, many: list[Point]):
    """Take objects."""


def test_arguments_are_what_the_function_takes():
    """Models, dataclasses, TypedDicts and enums arrive as such, and a text that is a number as the number."""
    text = '{"point":{"x":"1"},"box":{"width":2},"pair":{"left":"l"},"colour":"blue","many":[{"x":3}]}'
    found = Tool.of(typed).arguments(text)
    assert {
        "point": Point(x=1),
        "box": Box(2),
        "pair": {"left": "l"},
        "colour": Colour.BLUE,
        "many": [Point(x=3)],
    } == found


def field_default(limit: int = Field(3, ge=1)):  # pyright: ignore[reportArgumentType]
    """Have the default in a field."""


def test_defaults_are_the_functions_own():
    """What the model leaves out is not passed, unless the default is pydantic's to know."""
    assert {"text": "a"} == Tool.of(search).arguments('{"text": "a"}')
    assert {"limit": 3} == Tool.of(field_default).arguments("")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": 1, "limit": "x", "zz": 2}', "text: Input should be a valid string; limit: .*; zz: Extra inputs"),
        ('{"text": "a", "colour": "green"}', "colour: Input should be 'Red' or 'Blue'"),
        ("", "text: Field required"),
        ("[1]", "must be a JSON object, got \\[1\\]"),
        ("null", "must be a JSON object, got None"),
        ('{"text": "id = 1', '"INVALID_JSON": "{\\\\"text\\\\": \\\\"id = 1"'),
        ('{"text": "a" "limit"}', "no valid JSON"),
        ('{"text": "a"} and more', "no valid JSON: Extra data"),
        ('{"text": "a", "text": "b"}', "'text' stands twice"),
        ('{"text": "a", "limit": NaN}', "NaN is no number"),
        ('{"text": "a", "limit": Infinity}', "Infinity is no number"),
        ('{"text":' + "[" * 100_000, "nested too deeply"),
        ('{"limit": ' + "9" * 5000, "no valid JSON"),
    ],
)
def test_bad_arguments_are_told_to_the_model(text, message):
    """A cut call never runs with half of its arguments; what was no JSON goes back inside a field, and is not long."""
    with pytest.raises(InvalidArguments, match=message) as caught:
        Tool.of(search).arguments(text)
    assert len(str(caught.value)) < 5000


def test_a_validator_that_exits_is_told_too():
    """Validators are the user's code: whatever they raise ends nothing."""
    with pytest.raises(InvalidArguments, match="SystemExit: from a validator"):
        Tool.of(typed).arguments('{"point":{"x":101},"box":{"width":2},"pair":{"left":""},"colour":"Red","many":[]}')


def many(*values: str):
    """Take many."""


def by_place(a: int, /):
    """Take by place."""


def any_names(**a: int):
    """Take names."""


def untyped(a):
    """Take anything."""


def framed(frame: pd.DataFrame):
    """Take a frame."""


def unknown(a: NoSuchType):  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    """Take what is not there."""


def ümlaut(a: int):  # noqa: PLC2401 - what the test is about
    """Have a name that the API does not take."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (many, r"takes any number of arguments \(\*values\).*values: list\[str\]"),
        (by_place, "takes a by its place only"),
        (any_names, r"takes any names \(\*\*a\)"),
        (untyped, "'a' of tool 'untyped' has no type.*Write a: str"),
        (framed, "'frame' of tool 'framed' is of type DataFrame, which a model cannot write"),
        (unknown, "NoSuchType"),
        (ümlaut, "must be 1 to 64 letters a-z.*'ümlaut'"),
        (lambda: 1, "got '<lambda>'.*@am.tool"),
        (Shop, "got a class"),
        (3, "must be a function, got 3"),
        (len, "by its place only"),
    ],
)
def test_what_no_model_could_call_is_refused_when_declared(function, message):
    """The message names the parameter and says what to write instead."""
    with pytest.raises(DeclarationError, match=message):
        Tool.of(function)


def test_long_names_are_refused():
    """The API takes 64 characters."""
    with pytest.raises(DeclarationError, match="64"):
        Tool.of(search, "a" * 65)
    assert "a" * 64 == Tool.of(search, "a" * 64).name


def silent(a: int):  # noqa: D103 - what the test is about
    return a


def test_a_missing_docstring_warns():
    """It is all that the model is told."""
    with pytest.warns(UserWarning, match="'silent' has no docstring"):
        Tool.of(silent)
    Tool.of(silent)  # once: a warning would be an error here


def test_no_parameters_at_all():
    """A function without parameters takes an empty object, or nothing, and no more."""

    def now() -> str:
        """Return the time."""
        return "now"

    made = Tool.of(now)
    assert {} == made.arguments("") == made.arguments("{}")
    assert {"type": "object", "properties": {}, "additionalProperties": False} == made.definition()["input_schema"]
    with pytest.raises(InvalidArguments, match="Extra inputs"):
        made.arguments('{"a": 1}')


# flags


def test_the_decorator_returns_the_function_itself():
    """It stays callable and testable; its flags are read when it becomes a tool."""

    def send(to: str) -> str:
        """Send it."""
        return to

    marked = tool(ask=True, main=True, alone=True, timeout=30, name="send_mail", uses="smtp", writes=["outbox"])(send)
    assert marked is send
    assert "a" == marked("a")
    made = Tool.of(marked)
    assert ("send_mail", True, True, True, False, False) == (
        made.name, made.ask, made.main, made.alone, made.pure, made.safe,
    )  # fmt: skip
    assert (30, ("smtp",), ("outbox",)) == (made.timeout_s, made.uses, made.writes)
    assert tool(search) is search
    assert Tool.of(functools.partial(marked, to="a")).ask


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ask": 1}, "ask of a tool must be True or False, got 1"),
        ({"asks": True}, "no option 'asks'. Did you mean 'ask'"),
        ({"timeout": 0}, "timeout of a tool must be a number > 0"),
        ({"name": "a b"}, "must be 1 to 64 letters"),
    ],
)
def test_wrong_flags_are_refused_where_they_stand(options, message):
    """Not first when an agent uses the function."""
    with pytest.raises(DeclarationError, match=message):
        tool(**options)


def test_a_tool_goes_into_a_record_without_its_function():
    """Two are equal if the model is told the same and the code is the same; a copy keeps the function."""
    made = Tool.of(search)
    kept = pickle.loads(pickle.dumps(made))
    assert made == kept
    assert hash(made) == hash(kept)
    assert kept.function is None
    assert {"text": 1} == kept.arguments('{"text": 1}'), "no type is known any more"
    assert copy.deepcopy(made).function is search


def test_the_source_is_known_by_its_hash():
    """Another body is another hash; a function without source has none."""

    def one(a: int):
        """Do."""
        return a

    def two(a: int):
        """Do."""
        return a + 1

    assert Tool.of(one).source_sha != Tool.of(two).source_sha
    code = compile('def made(a: int):\n    """Do."""', "<nowhere>", "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    assert "" == Tool.of(namespace["made"]).source_sha


# names


def test_names_are_looked_up():
    """Functions, methods, server tools and whole toolboxes, in the order given, each once."""

    class Box:
        tools: ClassVar = {"search": Tool.of(search, "box_search"), "price": Tool.of(Shop().price, "box_price")}

    names = {"search": search, "shop": Shop(), "box": Box(), "web_search": "a variable"}
    found = tools_of("search,shop.price,web_search,box.*,box.price,search", names, agent="a")
    assert ["search", "price", "web_search", "box_search", "box_price"] == [one.name for one in found]
    assert [ServerTool("web_search")] == [one for one in found if isinstance(one, ServerTool)]
    assert [one.name for one in tools_of([search, ServerTool("web_fetch", max_uses=2), Box()])] == [
        "search",
        "web_fetch",
        "box_search",
        "box_price",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("serch", "'serch' is not defined. Did you mean 'search'"),
        ("web_serch", "Did you mean 'web_search'"),
        ("nothing_like_it", "Define the function in a cell above"),
        ("nope", "Define the function in a cell above"),
        ("shop.prise", "Did you mean 'shop.price'"),
        ("shop.__init__", "is not defined"),
        ("number", "'number' is not a tool: 3"),
        ("search.*", "is not a tool"),
        ("files.*", "%agents mcp files COMMAND starts a server of that name"),
        (3, "must be names"),
        ([3], "must be a function, got 3"),
    ],
)
def test_unknown_names_are_errors_that_help(given, message):
    """They name the agent and what was probably meant."""
    with pytest.raises(DeclarationError, match=message):
        tools_of(given, {"search": search, "shop": Shop(), "number": 3, "open": open}, agent="a")


def test_two_tools_of_one_name_are_refused():
    """The model could not tell them apart."""
    other = functools.partial(search, limit=1)
    with pytest.raises(DeclarationError, match="Two tools of agent 'a' are named 'search'"):
        tools_of([search, other], agent="a")


def numbered(number: int, optional: int = 0):
    """Make a function with so many optional parameters."""
    parameters = {f"p{one}": (int, 0) for one in range(optional)}

    def function(**given):
        return given

    function.__name__, function.__doc__ = f"t{number}", "Do."
    function.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter("a", KEYWORD, annotation=int)]
        + [
            inspect.Parameter(name, KEYWORD, annotation=kind, default=default)
            for name, (kind, default) in parameters.items()
        ]
    )
    return function


@pytest.mark.parametrize(("number", "optional", "strict"), [(25, 0, MOST_STRICT), (5, 10, MOST_OPTIONAL // 10)])
def test_more_than_a_request_can_hold_is_checked_here_only(number, optional, strict):
    """The provider holds 20 strict tools and 24 optional arguments; the user is told which it does not check."""
    with pytest.warns(UserWarning, match="are checked only when they are here"):
        found = tools_of([numbered(one, optional) for one in range(number)])
    assert strict == sum(isinstance(one, Tool) and one.strict for one in found)
    assert number == len(found)


def test_typed_answers_count_too():
    """Strict tools and the schema of the answer share the limits."""
    fields = {f"f{one}": {"type": "string"} for one in range(MOST_OPTIONAL)}
    schema = json.dumps({"type": "object", "properties": fields, "required": []})
    with pytest.warns(UserWarning, match="are checked only"):
        (found,) = tools_of([numbered(1, 1)], schema=schema)
    assert isinstance(found, Tool)
    assert not found.strict


def test_counted_counts_what_the_api_counts():
    """Optional fields and places of several types, however deep."""
    inner = {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}}, "required": []}
    schema = {"type": "object", "properties": {"b": {"type": "array", "items": inner}}, "required": ["b"]}
    assert (["x.b[].a"], ["x.b[].a"]) == counted(schema, "x")
    assert MOST_UNIONS > 0


# server tools


def test_server_tools_are_values():
    """They are asked for by their plain name, with their options; the provider writes the version."""
    made = ServerTool("web_search", max_uses=3)
    assert {"type": "web_search", "name": "web_search", "max_uses": 3} == made.definition()
    assert made == ServerTool("web_search", max_uses=3) == pickle.loads(pickle.dumps(made))
    assert made != ServerTool("web_search")
    assert 1 == len({made, ServerTool("web_search", max_uses=3)})
    with pytest.raises(DeclarationError, match="cannot be written as JSON"):
        ServerTool("web_search", callback=print)
    with pytest.raises(DeclarationError, match="a name such as web_search"):
        ServerTool("web search")


# round trips

KINDS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    list[int]: st.lists(st.integers(), max_size=3),
    Colour: st.sampled_from(Colour),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    int | None: st.none() | st.integers(),
    list[dict[str, int]]: st.lists(st.dictionaries(st.text("abc"), st.integers(), max_size=2), max_size=2),
    tuple[int, str]: st.tuples(st.integers(), st.text("xyz")),
}
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8).filter(str.isidentifier)


@st.composite
def calls(draw):
    """Draw a function's parameters, and arguments for those that a model gives."""
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    kinds = {name: draw(st.sampled_from(list(KINDS))) for name in names}
    optional = {name for name in names if draw(st.booleans())}
    values = {name: draw(KINDS[kind]) for name, kind in kinds.items() if name not in optional or draw(st.booleans())}
    return kinds, optional, values


def as_plain(value):
    """Return a value as JSON has it."""
    return value.value if isinstance(value, enum.Enum) else value


@given(calls())
def test_what_fits_arrives_as_it_was(call):
    """For any signature: arguments of the right types come through JSON unchanged, and the schema is one."""
    kinds, optional, values = call

    def function(**given):
        """Do."""
        return given

    function.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter(
                name,
                KEYWORD,
                annotation=kind,
                default=None if name in optional else inspect._empty,
            )
            for name, kind in kinds.items()
        ]
    )
    made = Tool.of(function)
    schema = made.definition()["input_schema"]
    assert list(kinds) == list(schema["properties"])
    assert set(schema.get("required", ())) == set(kinds) - optional
    if made.strict:
        check_schema(schema)
    text = json.dumps({name: as_plain(value) for name, value in values.items()})
    assert values == made.arguments(text)
    assert values == function(**made.arguments(text))


@given(st.text())
def test_no_text_of_a_model_breaks_anything(text):
    """Whatever a model writes is arguments, or an error that it is told."""
    with suppress(InvalidArguments):
        assert {"text"} <= Tool.of(search).arguments(text).keys()


def test_no_warning_on_the_way():
    """A default that JSON cannot hold is no news for the user."""
    default = object()

    def function(a: Any = default) -> None:
        """Do."""

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {} == Tool.of(function).arguments("{}")


class Bought:
    """A tool as other libraries make them."""

    def __init__(self, func):
        self.func = func

    def __str__(self):
        return "Bought"


class CalledAnyhow(Bought):
    """One that can be called with anything."""

    def __call__(self, *args, **kwargs):
        """Call the function."""
        return self.func(*args, **kwargs)


@pytest.mark.parametrize("kind", [Bought, CalledAnyhow])
def test_a_tool_of_another_library_is_refused_with_the_function_that_it_holds(kind):
    """LangChain, LlamaIndex and pydantic-ai keep the function in an attribute, which is what a tool is made of."""
    with pytest.raises(DeclarationError, match=r"Give the function that it holds: its \.func, or a @am\.tool"):
        Tool.of(kind(lambda a: a))
