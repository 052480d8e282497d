"""Pictures and documents in prompts: where they stand, what is refused, how they are counted."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from agent_magic import Agent, Context, image, pdf, text_file
from agent_magic.api import Plan as ApiPlan
from agent_magic.declare import Attachment, Plan, TokenRule, one_agent
from agent_magic.declare.content import blocks_of
from agent_magic.declare.values import as_attachment
from agent_magic.errors import AgentMagicError, DeclarationError
from tests.pdfs import pages

mpl.use("agg")
OLD, NEW = TokenRule(28, 1568, 1568, (2000, 8000)), TokenRule(28, 2576, 4784, (2000, 8000))


def figure(*values: float, size: tuple[float, float] = (2, 1)) -> Figure:
    """A small figure."""
    found = Figure(figsize=size, dpi=100)
    found.add_subplot().plot(values or (1, 2))
    return found


def png(mode: str = "RGB", size: tuple[int, int] = (30, 20), form: str = "PNG") -> bytes:
    """The bytes of a picture."""
    drawn = io.BytesIO()
    Image.new(mode, size).save(drawn, form)
    return drawn.getvalue()


def parts(prompt: str, values: dict[str, Any], **options: Any) -> list[Any]:
    """What a prompt becomes: texts, and the titles of attachments in a tuple."""
    plan = Plan((Agent("reader", prompt, **options),), values)
    plan.check_prompts()
    found = blocks_of(*plan.prompt_of(0, {}))
    return [one if isinstance(one, str) else (one.title,) for one in found]


PROMPTS = {
    "alone": ("{{ fig }}", [("fig",)]),
    "twice": ("{{ fig }}, {{ fig }}", [("fig",), ", ", ("fig",)]),
    "a loop": ("{% for one in figs %}{{ loop.index }}: {{ one }}\n{% endfor %}", None),
    "joined": ("{{ 'a' ~ fig ~ 'b' }}", ["a", ("fig",), "b"]),
    "upper": ("{{ fig | upper }}!", [("fig",), "!"]),
    "set": ("{% set one = fig %}{% if one %}x {{ one }}{% endif %}", ["x ", ("fig",)]),
    "a list": ("{{ figs }}", ["[", ("figs 1",), ", ", ("figs 2",), "]"]),
    "joined list": ("{{ figs | join(' and ') }}", [("figs 1",), " and ", ("figs 2",)]),
    "a dict": ("{{ named.left }}", [("named left",)]),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_attachments_stand_where_the_prompt_says(case: str):
    """Through expressions, loops, joins and lists, with the text around them as it is."""
    text, expected = PROMPTS[case]
    values = {"fig": figure(), "figs": [figure(1, 2), figure(2, 1)], "named": {"left": figure()}}
    wanted = expected or ["1: ", ("figs 1",), "\n2: ", ("figs 2",)]
    found = parts(text, values)
    assert wanted == found if expected else wanted == [one for one in found if one != "\n"]


@pytest.mark.parametrize(
    "text", ["{{ (fig ~ '') | truncate(12, true) }}", "{{ (fig ~ '') | reverse }}", "{{ (fig ~ '')[9:30] }}"]
)
def test_what_a_filter_leaves_of_a_picture_is_never_sent(text: str):
    """A cut or turned picture is an error before anything is sent."""
    with pytest.raises(DeclarationError, match="a filter has changed or cut a picture"):
        parts(text, {"fig": figure()})


@pytest.mark.parametrize("text", ["{{ fig | tojson }}", "{{ rows | tojson }}"])
def test_json_holds_no_picture(text: str):
    """`tojson` of a picture says what to write instead."""
    with pytest.raises(DeclarationError, match="cannot be written as JSON; write it whole"):
        parts(text, {"fig": figure(), "rows": [figure()]})


def test_a_part_of_a_figure_is_text():
    """A prompt may still take a title of an axes, and the picture beside it."""
    axes = figure().axes[0]
    axes.set_title("Sales")
    assert ["Sales: ", ("axes",)] == parts("{{ ax.get_title() }}: {{ ax }}", {"ax": axes})


def test_each_row_has_its_picture():
    """`each` over pictures, and over rows with pictures in a column."""
    plan = Plan(
        (Agent("one", "{{ item }}", each="scans"), Agent("two", "{{ item.n }}: {{ item.scan }}", each="rows")),
        {"scans": [image(png(), title="a.png"), figure()], "rows": [{"n": 1, "scan": figure()}]},
    )
    plan.check_prompts()
    found = [[one.attachment.title for one in plan.prompt_of(number, {}).attachments] for number in range(3)]
    assert [["a.png"], ["scans 1"], ["rows 0 scan"]] == found


def test_one_of_several_axes_is_cut_out():
    """An Axes of a figure with several is that one; of a figure with one, the whole figure."""
    drawn = Figure(figsize=(4, 2), dpi=100)
    left, _ = drawn.subplots(1, 2)
    left.plot([1, 2])
    plan = Plan((Agent("a", "{{ left }} {{ drawn }}"),), {"left": left, "drawn": drawn})
    assert (400, 200) == (plan.values["drawn"].width, plan.values["drawn"].height)
    assert plan.values["left"].width < 250
    alone = figure()
    plan = Plan((Agent("a", "{{ axes }} {{ alone }}"),), {"axes": alone.axes[0], "alone": alone})
    assert plan.values["axes"].sha256 == plan.values["alone"].sha256


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "L", "1", "P", "F", "I", "YCbCr", "LAB", "HSV"])
def test_pictures_of_every_mode_are_sent(mode: str):
    """What no PNG holds is converted."""
    plan = Plan((Agent("a", "{{ scan }}"),), {"scan": Image.new(mode, (30, 20))})
    scan = plan.values["scan"]
    assert ("image/png", 30, 20) == (scan.media_type, scan.width, scan.height)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
def test_files_of_pictures_are_read(form: str, tmp_path: Path):
    """Kind and size are read from the bytes, whatever the name says."""
    (tmp_path / "scan.dat").write_bytes(png(form=form))
    scan = image(tmp_path / "scan.dat")
    assert (f"image/{form.lower()}", 30, 20, "scan.dat") == (scan.media_type, scan.width, scan.height, scan.title)


def _closed() -> Image.Image:
    found = Image.open(io.BytesIO(png()))
    found.close()
    return found


def _removed() -> Any:
    drawn = figure()
    axes = drawn.axes[0]
    axes.remove()
    return axes


WRONG = {
    "an empty figure": (Figure, "figure 'fig' is empty"),
    "axes of no figure": (_removed, "no longer belong to a figure|is empty"),
    "a closed picture": (_closed, "picture 'fig' cannot be read: ValueError"),
    "a picture without pixels": (lambda: Image.new("RGB", (0, 5)), "has no pixels"),
    "8001 pixels": (lambda: Image.new("1", (8001, 1)), r"8,001x1 pixels; at most 8,000"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_picture_is_refused_when_the_plan_is_frozen(case: str):
    """With the name of the variable, and what to do."""
    made, message = WRONG[case]
    with pytest.raises(DeclarationError, match=message):
        Plan((Agent("a", "{{ fig }}"),), {"fig": made()})


FILES = {
    "a missing picture": (lambda: image("no/such.png"), "'no/such.png' cannot be read: No such file"),
    "a folder": (lambda: pdf(Path(__file__).parent), "cannot be read"),
    "a PDF as picture": (lambda: image(pages(1), title="x"), "'x' is no picture that can be sent"),
    "a picture as PDF": (lambda: pdf(png(), title="x"), "'x' is no PDF"),
    "an encrypted PDF": (lambda: pdf(pages(1, more=b"<< /Encrypt 5 0 R >>"), title="x"), "'x' is encrypted"),
    "601 pages": (lambda: pdf(pages(601), title="x"), "has 601 pages"),
    "a picture as text": (lambda: text_file(png(), title="x"), "'x' is no UTF-8 text"),
    "no text": (lambda: text_file(b" \n", title="x"), "'x' is empty"),
    "a large picture": (lambda: image(png() + bytes(8_000_000), title="x"), r"has 10\.7 MB as it is sent"),
    "a large document": (lambda: pdf(pages(1) + bytes(25_000_000), title="x"), r"has 33\.3 MB as it is sent"),
    "a number": (lambda: image(5), "must be a path or bytes, got 5"),
    "a figure": (lambda: image(figure()), "A figure needs no am.image"),
}


@pytest.mark.parametrize("case", FILES)
def test_what_cannot_be_sent_is_refused_when_it_is_read(case: str):
    """With what it is, and what to do."""
    made, message = FILES[case]
    with pytest.raises(DeclarationError, match=message):
        made()


def test_pages_are_counted():
    """Those of the last version: pages that were saved once more count once."""
    assert [3, 3, 0] == [pdf(data, title="x").pages for data in (pages(3), pages(3, revised=2), b"%PDF-1.7 damaged")]
    assert 301 == pdf(pages(301, revised=301), title="x").pages


REFUSED = {
    "cite and returns": (lambda: Agent("a", "x", cite=True, returns=int), "has cite and returns"),
    "cite without a document": (lambda: parts("{{ fig }}", {"fig": figure()}, cite=True), "no document to cite from"),
    "a path attached": (lambda: parts("x", {"report": Path("a.pdf")}, attach="report"), r"report = am\.pdf\(report\)"),
    "attach of a number": (lambda: Agent("a", "x", attach=5), "attach of agent 'a' must be names"),
    "cite of a text": (lambda: Agent("a", "x", cite="yes"), "cite of agent 'a' must be True or False"),
    "an unknown name": (lambda: Plan((Agent("a", "x", attach="nothing"),)), "nothing"),
    "a path in a context of several": (
        lambda: Plan((Agent("a", "x", context="figs"),), {"figs": [figure(), Path("a.pdf")]}).check_prompts(),
        r"shares figs, which is a path",
    ),
    "an empty figure in a context": (
        lambda: Plan((Agent("a", "x", context="c"),), {"fig": Figure()}, contexts=[Context("c", "{{ fig }}")]),
        "is empty",
    ),
    "32 MB together": (
        lambda: parts("{{ a }}{{ b }}", {n: pdf(pages(1) + n.encode() + bytes(13_000_000)) for n in "ab"}),
        r"has 34\.7 MB as it is sent",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_sent(case: str):
    """Each with its reason."""
    made, message = REFUSED[case]
    with pytest.raises(AgentMagicError, match=message):
        made()


@pytest.mark.parametrize(("end", "reader"), [("png", "image"), ("pdf", "pdf"), ("md", "text_file")])
def test_a_path_in_a_prompt_says_what_to_write(end: str, reader: str):
    """A bare path stays text, and the plan hints at what sends the file."""
    plan = Plan((Agent("a", "{{ report }}"),), {"report": Path(f"report.{end}")})
    assert [f"report = am.{reader}(report) sends what is in it"] == [one.split(". ")[-1] for one in plan.hints()]


def test_a_model_is_told_of_an_answer_as_a_document():
    """`attach` takes answers too; one that is not there yet is left out of what is foreseen."""
    plan = Plan((Agent("a", "Write."), Agent("b", "Check.", attach="a", cite=True)))
    assert ("a",) == plan.parents("b")
    plan.check_prompts()
    assert [(0, "a", "Grass.")] == [
        (at, one.title, one.text) for at, one in plan.prompt_of(1, {"a": "Grass."}).attachments
    ]
    assert () == plan.prompt_ahead(1, {"a": ""}).attachments


def test_a_plan_as_json_has_each_file_once():
    """Values name attachments by sha256, their bytes stand beside them; both come back."""
    plan = ApiPlan((Agent("a", "{{ fig }} {{ figs }}", attach=("fig",)),), {"fig": figure(), "figs": [figure()]})
    text = plan.to_json()
    data = json.loads(text)
    assert [plan.values["fig"].sha256] == list(data["attachments"])
    again = ApiPlan.from_json(text)
    assert plan.values["fig"] == again.values["fig"]
    assert plan.values["fig"].data == again.values["figs"][0].data
    assert plan.agents[0].attach == again.agents[0].attach


def test_bytes_that_are_not_what_they_are_called_are_left_out():
    """A plan from a stranger cannot put another picture under a known sha256."""
    data = ApiPlan((Agent("a", "{{ fig }}"),), {"fig": figure()}).to_dict()
    (name,) = data["attachments"]
    data["attachments"][name] = "AAAA"
    assert b"" == ApiPlan.from_dict(data).values["fig"].data


def test_one_agent_gets_every_picture_once():
    """The baseline of a plan attaches what its agents do."""
    plan = Plan((Agent("a", "{{ fig }}"), Agent("b", "{{ fig }} {{ a }}", attach="fig")), {"fig": figure()})
    found = one_agent(plan).prompt_of(0, {})
    assert ["fig"] == [one.attachment.title for one in found.attachments]


@pytest.mark.parametrize(
    ("size", "old", "new"), [((640, 480), 414, 414), ((1280, 960), 1564, 1610), ((1920, 1440), 1564, 3588)]
)
def test_tokens_of_a_picture_are_those_that_were_measured(size: tuple[int, int], old: int, new: int):
    """Tiles of 28 pixels, scaled down to the edge and the tokens of the model."""
    one = Attachment("image", "image/png", "", width=size[0], height=size[1])
    assert [(old, old), (new, new)] == [rule.tokens(one) for rule in (OLD, NEW)]


@pytest.mark.parametrize("width", [1, 100, 2576, 8000])
def test_no_picture_has_more_tokens_than_its_model_allows(width: int):
    """At any size."""
    for height in (1, 29, 999, 8000):
        one = Attachment("image", "image/png", "", width=width, height=height)
        for rule in (OLD, NEW):
            found = rule.tokens(one)
            assert found is not None
            assert 1 <= found[0] <= rule.most_tokens


def test_no_library_of_pictures_is_imported():
    """Declaring agents and reading files imports neither matplotlib nor PIL nor plotly."""
    import subprocess

    code = (
        "import sys, agent_magic as am\n"
        f"am.image({png()!r})\n"
        "am.Plan((am.Agent('a', '{{ x }}'),), {'x': [1]}).check_prompts()\n"
        "print([name for name in ('matplotlib', 'PIL', 'plotly') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            ValueError('Image export using the "kaleido" engine requires the Kaleido package'),
            "without kaleido. pip ins",
        ),
        (RuntimeError("Image export requires the Kaleido package, v1.0.0"), "without kaleido. pip install kaleido"),
        (RuntimeError("Kaleido v1 requires Google Chrome to be installed."), "without Chrome, .* plotly_get_chrome"),
        (RuntimeError("no memory"), "cannot be read: RuntimeError: no memory"),
    ],
)
def test_a_plotly_figure_says_what_draws_it(raised, said):
    """The library has other words for it in each version."""

    def to_image(self: object, format: str) -> bytes:  # noqa: A002 - plotly's own name
        raise raised

    figure = type("BaseFigure", (), {"__module__": "plotly.graph_objs._figure", "to_image": to_image})
    with pytest.raises(DeclarationError, match=said):
        as_attachment(figure(), "fig")
