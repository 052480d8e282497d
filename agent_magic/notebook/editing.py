"""Replace an answer by a person's text: the cell `%%agents edit NAME`, and the Edit button of a card."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agent_magic.api.editing import editable
from agent_magic.errors import AgentMagicError
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.show.text import listed

if TYPE_CHECKING:
    from agent_magic.api import Run
    from agent_magic.notebook.session import Session
    from agent_magic.show.live import Edit

_MOST_NAMED = 5


def text_to_edit(run: Run, name: str) -> str:
    """Return an edit that no run has taken yet, or the answer."""
    result = editable(run.record, name)
    edits = reversed(run.record.edits.items())
    return next((one.text for (agent, _), one in edits if agent == result.name), result.text)


def edit_answer(session: Session, run: Run, name: str, text: str) -> str:
    """Replace an agent's answer; say the consequences, or raise `AgentMagicError` if the text cannot be one."""
    shared = session.shared
    asked = run.edit(name, text, session=shared)
    session.applied.append((f"{name} has the model's answer again", [partial(run.unedit, name, session=shared)]))
    plan = "" if run.plan.name == DEFAULT_PLAN else f" --plan {run.plan.name}"
    then = f"%agents run{plan} asks again what depends on it: {listed(asked, _MOST_NAMED)}." if asked else ""
    kept = "" if session.keeping.ledger else " The ledger is off: the edit counts for %agents retry, not for a new run."
    return f"Edited: {name}. {then or 'Nothing depends on it.'} %agents undo takes it back.{kept}"


def editor(session: Session, run: Run) -> Edit:
    def edit(name: str, text: str | None) -> tuple[str, bool]:
        try:
            return text_to_edit(run, name) if text is None else edit_answer(session, run, name, text), True
        except AgentMagicError as error:
            return str(error), False

    return edit
