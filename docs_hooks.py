"""Hooks of the documentation build (`make docs`)."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def on_config(config: Any) -> None:
    """List every page of docs/extend in the navigation: one page for each registry."""
    for section in config["nav"]:
        if "Extend" in section:
            section["Extend"] = [f"extend/{page.name}" for page in sorted(DOCS.glob("extend/*.md"))]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files outside docs/, which the built pages do not contain, by their path."""
    folder = (DOCS / page.file.src_uri).parent

    def replace_link(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if target.is_relative_to(DOCS) or not target.exists():
            return match[0]
        return f"{match[1]} (`{target.relative_to(ROOT)}`)"

    return LINK.sub(replace_link, markdown)
