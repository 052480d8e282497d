"""Values in prompts, items, tasks, tool results, JSON and keys: the only module that reads them.

A value is judged by its methods, not by its module. It is used whole or refused: nothing is cut or consumed by being
read, and two different values never become one.

| question | function | table | array | iterator |
| --- | --- | --- | --- | --- |
| its text | `as_text`, `value_text` | CSV | a list | refused |
| its items | `read_items` | its rows, with its index | its items | refused |
| its JSON | `as_json` | a list of rows | a list | refused |
| its identity | `fingerprint` | class, columns, cells | class, items | nothing |
| its stored form | `pack` | frames and series of pandas | arrays of numpy | none |
"""

# pyright: reportUnusedImport=false
from agent_magic.declare.validation import find_name, same_name, with_same_names
from agent_magic.declare.values.contents import (
    MOST_CHARS,
    PLAIN,
    TOO_LONG,
    check_size,
    column_names,
    count_cells,
    index_of,
    is_array,
    is_lazy,
    is_single_use,
    is_table,
    is_too_deep,
    levels_of,
    plain_scalar,
    read_array,
    read_table,
    single_use_in,
    text_size,
)
from agent_magic.declare.values.items import Row, as_item, items_now, read_items
from agent_magic.declare.values.jsons import as_json, as_plain
from agent_magic.declare.values.packing import DIGITS, SCALARS, digest, fingerprint, pack, packed_key, unpack, unpacked
from agent_magic.declare.values.pictures import (
    PDF,
    as_attachment,
    image,
    is_one,
    pdf,
    picture_of,
    text_document,
    text_file,
)
from agent_magic.declare.values.text import (
    HOLDS_ITSELF,
    TOO_DEEP,
    NoTextError,
    RaisedError,
    RenderError,
    as_text,
    check_values,
    frozen,
    holds_content,
    is_frozen,
    plain_reason,
    reader_of,
    sendable,
    value_notes,
    value_text,
    whole,
)
