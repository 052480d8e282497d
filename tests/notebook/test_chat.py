"""`%agents connect chat URL`."""

from __future__ import annotations

import asyncio

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import agent_magic as am
from agent_magic.notebook import AgentMagics

URL = "http://127.0.0.1:8000"


@pytest.fixture
def magics():
    """A notebook."""
    made = AgentMagics(InteractiveShell())
    yield made
    made.session.close()


def connect(magics, line):
    """Run the command; return who answers then."""
    asyncio.run(magics.agents_async(f"connect {line}"))
    return magics.session.shared.client


def test_it_connects_to_a_server(magics, capsys, monkeypatch):
    """The key is of the variable that is named, and is not shown."""
    chat = connect(magics, f"chat {URL} --free")
    assert (f"{URL}/v1", True, am.Chat) == (chat.endpoint, chat.is_free, type(chat))
    assert f"Connected to {URL}/v1" in capsys.readouterr().out
    monkeypatch.setenv("GATEWAY_KEY", "gsk-abcdefghijklmnop0123456789")
    first = connect(magics, f"chat {URL}/v1 --key-env GATEWAY_KEY")
    assert not first.is_free
    assert first.account != chat.account
    assert "gsk-" not in capsys.readouterr().out


def test_it_names_the_model_and_what_it_costs(magics, capsys):
    """After the mock server: what is free costs nothing, and the model asked for is one that the server may lack."""
    connect(magics, "simulator")
    connect(magics, f"chat {URL} --free")
    told = "".join(capsys.readouterr())
    assert "answers now, at no cost, as you said" in " ".join(told.split())
    assert f"agents without --model ask it for '{magics.model}'" in " ".join(told.split())
    connect(magics, "simulator")
    connect(magics, f"chat {URL}")
    assert "answers now, which costs money" in " ".join("".join(capsys.readouterr()).split())


def test_a_variable_of_that_name_is_meant_first(magics):
    """As with every other place."""
    magics.shell.user_ns["chat"] = own = am.Chat(f"{URL}/own")
    assert own is connect(magics, "chat")
    with pytest.raises(UsageError, match="chat is your variable here"):
        connect(magics, f"chat {URL}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("chat", "Where is it"),
        (f"chat {URL} --key-env NO_SUCH_KEY", "No variable 'NO_SUCH_KEY' is set"),
        (f"chat {URL} --key-env sk-a-key-itself", "takes the name of a variable"),
        ("chat nowhere", "is not the address of a server"),
        (f"chat {URL} --workers 2", "--workers comes after dask"),
        (f"api {URL}", "An address comes after chat or dask"),
        ("api --free", "--key-env and --free come after chat"),
    ],
)
def test_what_does_not_go_together_is_refused(magics, line, words):
    """Nothing is connected; a key that was typed in is not repeated."""
    with pytest.raises(UsageError, match=words) as caught:
        connect(magics, line)
    assert "sk-a-key" not in str(caught.value)
