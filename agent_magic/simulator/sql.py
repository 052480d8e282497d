"""Plausible SQL: over the tables that a text names, or over the catalogue where it names none."""

from __future__ import annotations

import re
from random import Random

from agent_magic.simulator.json_types import Json

_SOUNDS = re.compile(r"(?:\b|_)(?:sql|sqlite|duckdb|postgres|database|select)(?:\b|_)", re.IGNORECASE)
_NAME = r"[\"'`]?([A-Za-z_]\w{1,60})[\"'`]?"
_TABLE = re.compile(rf"\b(?:create table(?: if not exists)?|from|join|into|tables?:?)\s+{_NAME}", re.IGNORECASE)
_WITH_COLUMNS = re.compile(rf"{_NAME}\s?\((\s*[\"'`a-z_](?:[^()]|\([^()]*\)){{2,900}})\)", re.IGNORECASE)
_BEFORE_TABLE = re.compile(rf"\b{_NAME} table\b", re.IGNORECASE)
_COLUMN = re.compile(r"\s*[\"'`]?([A-Za-z_]\w*)")
_NO_TABLE = frozenset(
    "create drop alter "
    "the a an this that these those it its one each every any all select where sql sqlite database data table tables "
    "read only which what run query column columns row rows values limit".split()
)
_NO_COLUMN = frozenset("primary foreign unique check constraint key".split())
_NUMBER = re.compile(
    r"amount|revenue|total|price|sales|quantity|qty|cost|profit|count|units|value|score", re.IGNORECASE
)
_ID = re.compile(r"(?:^|_)id$", re.IGNORECASE)
CATALOGUE = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"


def sounds_like_sql(tool: Json) -> bool:
    """Tell whether a tool takes SQL, by its name and description."""
    return bool(_SOUNDS.search(f"{tool.get('name')} {tool.get('description')}"))


def sql_for(text: str, rng: Random) -> str:
    """Return a query over a table of a text.

    Args:
        text: What is known of the database: results, the description of the tool, the prompt. `orders(id, region)` and
            `CREATE TABLE` tell the columns too.
        rng: Decides which.
    """
    tables = tables_of(text)
    if not tables:
        return CATALOGUE
    table = rng.choice(list(tables))
    columns = [column for column in tables[table] if not _ID.search(column)]
    numbers = [column for column in columns if _NUMBER.search(column)]
    groups = [column for column in columns if column not in numbers]
    if groups and numbers:
        group, number, function = rng.choice(groups), rng.choice(numbers), rng.choice(("SUM", "AVG"))
        return (
            f"SELECT {group}, {function}({number}) AS {function.lower()}_{number} FROM {table} GROUP BY {group} "
            f"ORDER BY 2 {rng.choice(('DESC', 'ASC'))} LIMIT {rng.choice((5, 10))}"
        )
    if groups:
        group = rng.choice(groups)
        return f"SELECT {group}, COUNT(*) AS n FROM {table} GROUP BY {group} ORDER BY n DESC LIMIT 10"
    return rng.choice((f"SELECT COUNT(*) AS n FROM {table}", f"SELECT * FROM {table} LIMIT 5"))


def tables_told(text: str) -> bool:
    """Tell whether a result is the catalogue of a database."""
    return bool(re.search(r"\bcreate table\b", text, re.IGNORECASE))


def tables_of(text: str) -> dict[str, list[str]]:
    """Return the tables that a text names, with their columns where it tells them."""
    found: dict[str, list[str]] = {}
    for name, columns in _WITH_COLUMNS.findall(text):
        parts = [part[1] for part in map(_COLUMN.match, re.split(r",(?![^(]*\))", columns)) if part]
        if len(parts) > 1 and name.lower() not in _NO_TABLE:
            found[name] = [part for part in parts if part.lower() not in _NO_COLUMN]
    if found:
        return found
    named = [name for pattern in (_TABLE, _BEFORE_TABLE) for name in pattern.findall(text)]
    return {name: [] for name in dict.fromkeys(named) if name.lower() not in _NO_TABLE and name != "sqlite_master"}
