"""What a build adds to the metadata: the addresses of the project, and a description for the page of the package index.

`pyproject.toml` gives the address of the repository once, under `[tool.hatch.metadata.hooks.custom]`. The index shows a
README without the files beside it, so its links and pictures get whole addresses, of the version that is built.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE = r"(?P<code>^```.*?^```|`[^`]*`)"
TARGET = re.compile(CODE + r"|\]\((?!\w+:|#)(?P<path>[^)]+)\)", re.DOTALL | re.MULTILINE)
LINK = re.compile(CODE + r"|(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?!\w+:|#)[^)]+\)", re.DOTALL | re.MULTILINE)
PICTURES = (".png", ".svg", ".webp")


class Metadata(MetadataHookInterface):
    """Write `readme` and `urls`, which `pyproject.toml` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata of the project."""
        address = self.config.get("repository", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = description(text, address, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(address)


def urls(address: str) -> dict[str, str]:
    """Return the links that the index shows beside the description. There are none while no address is given."""
    if not address:
        return {}
    pages = {"Documentation": "tree/main/docs", "Changelog": "blob/main/CHANGELOG.md", "Issues": "issues"}
    return {"Repository": address, **{name: f"{address}/{page}" for name, page in pages.items()}}


def description(text: str, address: str, tag: str) -> str:
    """Return the README with whole addresses. While no address is given, links are words and pictures are left out."""
    if not address:
        return LINK.sub(lambda found: found["code"] or ("" if found["picture"] else found["words"]), text)
    return TARGET.sub(lambda found: found["code"] or f"]({address}/{_kind(found['path'])}/{tag}/{found['path']})", text)


def _kind(path: str) -> str:
    """Return what the repository's host calls a file that is a picture, and one that is read."""
    return "raw" if path.endswith(PICTURES) else "blob"
