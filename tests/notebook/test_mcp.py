"""`%agents mcp`: servers of tools in a notebook."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic import McpServer
from agent_magic.errors import AgentMagicError, DeclarationError
from agent_magic.notebook import AgentMagics
from tests.live.mcp_web import Asked, Web

pytest.importorskip("mcp", reason="the package mcp is optional")
SHOP = shlex.join([sys.executable, str(Path(__file__).parents[1] / "live" / "mcp_shop.py")])


@pytest.fixture
def magics():
    """A notebook."""
    made = AgentMagics(InteractiveShell())
    yield made
    made.session.close()


def command(magics, line):
    """Run a command as a cell does."""
    asyncio.run(magics.agents_async(line))


def test_a_server_is_started_and_its_tools_are_named(magics, capsys):
    """`--tools NAME.*` takes all, `--tools NAME.TOOL` one; a server of the same name takes the place of the other."""
    command(magics, f"mcp shop {SHOP}")
    assert (
        "shop: 5 tools. --tools shop.* takes all.\n  price    Return the price of an item.\n" in capsys.readouterr().out
    )
    first = magics.session.servers["shop"]
    magics.agent("clerk --tools shop.*", "What is tea?\n")
    magics.agent("other --tools shop.price", "What is tea?\n")
    clerk, other = magics.session.plan(magics.shell.user_ns, defaults={}).agents
    assert ["shop_price", "shop_fail", "shop_who_is", "shop_picture", "shop_scraps"] == [
        one.name for one in clerk.tools
    ]
    assert ["shop_price"] == [one.name for one in other.tools]
    command(magics, f"mcp shop {SHOP}")
    assert first is not magics.session.servers["shop"]
    assert not first._thread.is_alive()
    capsys.readouterr()
    command(magics, "mcp")
    assert capsys.readouterr().out.startswith("shop: 5 tools.")
    magics.session.close()
    assert not magics.session.servers["shop"]._thread.is_alive()


def test_what_does_not_run_is_said(magics, capsys):
    """Nothing runs, nothing of that name, nothing that starts."""
    command(magics, "mcp")
    assert "No MCP server runs.\n" == capsys.readouterr().out
    command(magics, "mcp shop")
    assert "There is no MCP server 'shop'. Start it: %agents mcp shop COMMAND, or URL\n" == capsys.readouterr().out
    with pytest.raises(UsageError, match="did not start"):
        command(magics, "mcp shop no-such-program-anywhere")
    with pytest.raises(UsageError, match=r"'shop\.price' is not defined"):
        magics.agent("clerk --tools shop.price", "What is tea?\n")


ODD = shlex.join([sys.executable, str(Path(__file__).parents[1] / "live" / "mcp_odd.py")])


def test_a_server_of_five_hundred_tools_is_listed_in_short(magics, capsys):
    """The list and the card name the first; what many cost is said."""
    command(magics, f"mcp odd {ODD} many")
    said = capsys.readouterr().out
    assert said.startswith("odd: 500 tools. --tools odd.* takes all.\n  t0   The tool t0.\n")
    assert "\n  and 480 more. Each is sent with every request, and models choose worse\n" in said
    assert 23 == len(said.splitlines())
    magics.agent("clerk --tools odd.*", "What is tea?\n")
    assert "tools odd_t0, odd_t1, " in (card := capsys.readouterr().out)
    assert "odd_t11 and 488 more" in card


def test_a_server_that_has_ended_or_says_odd_things_is_told(magics, capsys):
    """The list says it, with the command to start it again."""
    command(magics, f"mcp odd {ODD} chatty")
    ignored = "  note: it prints lines that are no messages of the protocol (ignored): 'listening on port 3000 ...'\n"
    assert capsys.readouterr().out.endswith(ignored)
    magics.session.servers["odd"].close()
    command(magics, "mcp")
    assert f"odd: has ended. Start it again: %agents mcp odd {ODD} chatty\n" == capsys.readouterr().out


def test_a_server_at_an_address_gets_keys_of_the_environment(magics, capsys, monkeypatch):
    """A cell is saved with what stands in it, so it names variables."""
    monkeypatch.setenv("CRM_KEY", "a-key-of-no-known-shape-4711")
    monkeypatch.delenv("NO_KEY", raising=False)
    with Web() as web:
        command(magics, f"mcp --key-env CRM_KEY --header X-Team=CRM_KEY crm {web.url}")
        assert capsys.readouterr().out == "crm: 1 tool. --tools crm.* takes all.\n  echo  Say it again.\n"
        magics.agent("clerk --tools crm.*", "What is tea?\n")
        (clerk,) = magics.session.plan(magics.shell.user_ns, defaults={}).agents
        assert ["crm_echo"] == [one.name for one in clerk.tools]
        headers = web.seen[0][1]
        assert headers["Authorization"] == f"Bearer {headers['X-Team']}" == "Bearer a-key-of-no-known-shape-4711"
        magics.session.servers["crm"].close()
        command(magics, "mcp")
        assert f"crm: has ended. Start it again: %agents mcp crm {web.url}\n" in capsys.readouterr().out
        for line, said in (
            (f"--key-env NO_KEY crm {web.url}", "No variable 'NO_KEY' is set. Set it: os.environ"),
            (f"--key-env sk-12 crm {web.url}", "--key-env takes the name of a variable"),
            (f"--header X-Team crm {web.url}", "--header NAME=VARIABLE takes the name of a variable"),
            (f"crm {web.url} --key-env CRM_KEY", "'--key-env CRM_KEY' stands behind the URL. Options come before"),
            ("--key-env CRM_KEY crm some-program", "--key-env and --header are for a URL"),
            (f"--env CRM_KEY crm {web.url}", "it takes no command and no env"),
            ("crm http://127.0.0.1:1/mcp", "did not open a session .*no connection"),
        ):
            with pytest.raises(UsageError, match=said) as caught:
                command(magics, f"mcp {line}")
            assert "sk-12" not in str(caught.value)


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
CONTENTS: dict[str, list[dict[str, str]]] = {
    "crm://rules": [{"uri": "crm://rules", "text": "Rule {{ one }}: be kind."}],
    "crm://dot": [{"uri": "crm://dot.png", "mimeType": "image/png", "blob": DOT}],
    "crm://both": [{"uri": "crm://a", "text": "A"}, {"uri": "crm://dot.png", "mimeType": "image/png", "blob": DOT}],
    "crm://customers/7": [{"uri": "crm://customers/7", "text": "Ada"}],
    "crm://zip": [{"uri": "crm://zip", "mimeType": "application/zip", "blob": "AAAA"}],
    "crm://empty": [{"uri": "crm://empty", "text": " "}],
    "crm://none": [],
}


def listed(asked: Asked) -> None:
    """List resources on two pages."""
    more = (asked.message.get("params") or {}).get("cursor")
    names = ["rules", "dot", "both"] if not more else ["zip", "empty", "none", "twin", "twin"]
    found = [{"name": name, "title": name.upper(), "uri": f"crm://{name}"} for name in names]
    if more:
        found[-1]["uri"] += "2"
        asked.result(resources=found)
    else:
        asked.result(resources=found, nextCursor="2")


def read(asked: Asked) -> None:
    """Read a resource."""
    asked.result(contents=CONTENTS[asked.message["params"]["uri"]])


RESOURCES: dict[str, Any] = {
    "resources/list": listed,
    "resources/read": read,
    "resources/templates/list": lambda asked: asked.result(
        resourceTemplates=[{"name": "customer", "uriTemplate": "crm://customers/{id}"}]
    ),
}


def test_a_resource_is_attached_as_it_is_when_the_plan_is_made(magics, capsys, tmp_path, monkeypatch):
    """Its content is in the request, so another content is another request; its text is no template."""
    with Web(RESOURCES) as web:
        command(magics, f"mcp crm {web.url}")
        magics.agent("clerk --attach crm:rules,crm:dot,crm:BOTH,crm:crm://customers/7", "Is that kind?\n")
        assert "crm:rules" not in capsys.readouterr().err
        command(magics, "")
        assert "clerk" in capsys.readouterr().out
        plan = magics.session.plan(magics.shell.user_ns, defaults={})
        prompt = plan.prompt_of(0, {})
        sent = [(one.attachment.kind, one.attachment.text) for one in prompt.attachments]
        assert ("document", "Rule {{ one }}: be kind.") == sent[0]
        assert ["document", "image", "document", "image", "document"] == [kind for kind, _ in sent]
        assert ("document", "Ada") == sent[-1]
        same = magics.session.plan(magics.shell.user_ns, defaults={})
        CONTENTS["crm://rules"][0]["text"] = "Be quick."
        try:
            other = magics.session.plan(magics.shell.user_ns, defaults={})
        finally:
            CONTENTS["crm://rules"][0]["text"] = "Rule {{ one }}: be kind."
        assert prompt == same.prompt_of(0, {})
        assert prompt != other.prompt_of(0, {})
        assert plan == type(plan).from_dict(plan.to_dict())
        monkeypatch.chdir(tmp_path)
        command(magics, "export cells out.ipynb")
        written = (tmp_path / "out.ipynb").read_text()
        assert "--attach crm:rules" in written
        assert "crm:rules = " not in written


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rulse", r"has no resource 'rulse'\. Did you mean 'rules'\?.*It has: rules, dot, .* crm://customers/\{id\}"),
        ("twin", r"has 2 resources 'twin': crm://twin, crm://twin2\..*Name one by its URI"),
        ("zip", r"'zip' .* cannot be sent: \(resource left out: application/zip\)"),
        ("empty", "'empty' .* is empty"),
        ("none", "'none' .* is empty"),
        ("crm://gone", "The resource 'crm://gone' of the MCP server 'crm' cannot be read"),
    ],
)
def test_resources_that_cannot_be_attached_are_named_with_what_there_is(magics, name, message):
    """The plan is not made."""
    with Web(RESOURCES) as web:
        command(magics, f"mcp --timeout 5 crm {web.url}")
        magics.agent(f"clerk --attach crm:{name}", "Is that kind?\n")
        with pytest.raises(AgentMagicError, match=f"(?s){message}"):
            magics.session.plan(magics.shell.user_ns, defaults={})


def test_a_resource_of_no_server_or_of_one_that_has_none(magics):
    """The cell says so; a server without resources says so when the plan is made, as does one that is silent."""
    with pytest.raises(UsageError, match=r"No MCP server 'crm' runs, which 'crm:doc' names.*%agents mcp crm COMMAND"):
        magics.agent("clerk --attach crm:doc", "Is that kind?\n")
    with Web() as web, Web({"resources/list": lambda asked: asked.wait()}) as silent:
        command(magics, f"mcp crm {web.url}")
        command(magics, f"mcp --timeout 0.3 silent {silent.url}")
        with pytest.raises(UsageError, match="These run: crm, silent"):
            magics.agents_cell("", "## clerk --attach crn:doc\nIs that kind?\n")
        for name, said in (("crm", "It has no resources"), ("silent", r"did not answer within 0\.3 s: resource 'doc'")):
            magics.agent(f"clerk --attach {name}:doc", "Is that kind?\n")
            with pytest.raises(AgentMagicError, match=f"(?s){said}"):
                magics.session.plan(magics.shell.user_ns, defaults={})


def shown(asked: Asked) -> None:
    """Return a prompt with its arguments filled in."""
    given = asked.message["params"].get("arguments") or {}
    content = [{"type": "text", "text": f"Review {given.get('customer')} {{{{ one }}}}."}]
    content += [{"type": "text", "text": "Be short."}] if "tone" in given else []
    asked.result(messages=[{"role": "user", "content": one} for one in content])


PROMPTS: dict[str, Any] = {
    "prompts/list": lambda asked: asked.result(
        prompts=[
            {
                "name": "review",
                "title": "Review a customer",
                "arguments": [{"name": "customer", "required": True}, {"name": "tone"}],
            },
            {"name": "plain"},
        ]
    ),
    "prompts/get": shown,
}


def test_a_prompt_of_a_server_is_a_value_and_no_template(magics):
    """With its arguments; a server in a variable counts as one of `%agents mcp`."""
    with Web(PROMPTS | RESOURCES) as web, McpServer("crm", url=web.url) as crm:
        magics.shell.user_ns["crm"] = crm
        magics.shell.user_ns["review"] = crm.prompt("review", customer="Ada", tone="kind")
        magics.agent("clerk --attach crm:rules", "{{ review }} Now.\n")
        plan = magics.session.plan(magics.shell.user_ns, defaults={})
        prompt = plan.prompt_of(0, {})
        assert prompt.text.endswith("Review Ada {{ one }}.\n\nBe short. Now.")
        assert "Rule {{ one }}: be kind." == prompt.attachments[0].attachment.text
        assert "Review None {{ one }}." == crm.prompt("plain")
        assert "Review Bob {{ one }}." == crm.prompt("Review a customer", customer="Bob")


def test_a_cell_takes_a_prompt_of_a_server_with_the_variables_of_its_arguments_names(magics, tmp_path, monkeypatch):
    """Each plan reads it again; its text is data, the cell's own follows as a template; it is exported as a value."""
    names = magics.shell.user_ns
    names |= {"customer": "Ada", "short": "Hurry."}
    with Web(PROMPTS) as web:
        command(magics, f"mcp crm {web.url}")
        magics.agent("check --prompt crm:review", "{{ short }}\n")
        magics.agents_cell("", "## other --prompt crm:plain\n")
        plan = magics.session.plan(names, defaults={})
        assert "Review Ada {{ one }}.\n\nHurry." == plan.prompt_of(0, {}).text
        assert "Review None {{ one }}." == plan.prompt_of(1, {}).text
        names |= {"customer": 7, "tone": "kind"}
        plan = magics.session.plan(names, agents=["check"], defaults={})
        assert "Review 7 {{ one }}.\n\nBe short.\n\nHurry." == plan.prompt_of(0, {}).text
        monkeypatch.chdir(tmp_path)
        command(magics, "export cells out.ipynb")
        assert "prompt_crm_review = 'Review 7" in (tmp_path / "out.ipynb").read_text()


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("crm:review", "needs the argument 'customer'.*It takes: customer, tone"),
        ("crm:reviw", "has no prompt 'reviw'. Did you mean 'review'?"),
        ("shop:review", "No MCP server 'shop' runs"),
        ("crm:", "takes a prompt of an MCP server, such as crm:review.*first line of the cell"),
        ("hello", "takes a prompt of an MCP server, such as crm:review.*first line of the cell"),
    ],
)
def test_a_cell_whose_prompt_cannot_be_had_declares_nothing(magics, prompt, message):
    """The cell says what there is."""
    with Web(PROMPTS) as web:
        command(magics, f"mcp crm {web.url}")
        with pytest.raises(UsageError, match=f"(?s){message}"):
            magics.agent(f"check --prompt {prompt}", "Now.\n")
        assert not magics.session.registry().agents


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("reviw", {}, "has no prompt 'reviw'. Did you mean 'review'?.*It has: review, plain"),
        ("review", {}, "needs the argument 'customer'.*It takes: customer, tone"),
        ("review", {"custmer": "a"}, "takes no argument 'custmer'. Did you mean 'customer'"),
        ("review", {"customer": 7}, "must be a text, got 7"),
        ("plain", {"customer": "a"}, "takes no argument 'customer'.*It takes no arguments"),
    ],
)
def test_prompts_that_cannot_be_had_are_named_with_what_there_is(name, arguments, message):
    """Nothing is asked for."""
    with Web(PROMPTS) as web, McpServer("crm", url=web.url) as crm:
        with pytest.raises(DeclarationError, match=f"(?s){message}"):
            crm.prompt(name, **arguments)
        assert 0 == web.count("prompts/get")
