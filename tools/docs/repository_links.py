"""A hook of mkdocs: pages may link to files of the repository outside docs/.

In: pages whose links are right in the repository, as editors and code hosts show them. Out: a site in which the same
links work. The hook copies each linked file to `repository/`; Markdown files among them become pages. Always true: a
link to a file that does not exist stays as it is, so `mkdocs build --strict` fails.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
FOLDER = "repository"
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def linked(page: Path) -> set[Path]:
    """Give the files that a page links to."""
    targets = (Path(os.path.normpath(page.parent / match["path"])) for match in LINK.finditer(page.read_text()))
    return {target for target in targets if target.is_file()}


def outside() -> set[Path]:
    """Give the files outside of docs/ that pages link to, directly or through another such page."""
    found: set[Path] = set()
    waiting = set(DOCS.rglob("*.md"))
    while waiting:
        beyond = {target for target in linked(waiting.pop()) if DOCS not in target.parents and ROOT in target.parents}
        waiting |= {target for target in beyond - found if target.suffix == ".md"}
        found |= beyond
    return found


def address(target: Path) -> str:
    """Give the place of a repository's file in the site's tree of sources."""
    return str(target.relative_to(DOCS)) if DOCS in target.parents else f"{FOLDER}/{target.relative_to(ROOT)}"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/."""
    for path in sorted(outside()):
        files.append(File.generated(config, address(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between docs/ and the rest of the repository."""
    source = Path(str(page.file.abs_src_path))
    here = Path(address(source)).parent

    def rewrite(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match["path"]))
        if target.is_dir():
            return match["text"]  # A folder has no page.
        if not target.is_file():
            return match[0]
        return f"[{match['text']}]({os.path.relpath(address(target), here)}{match['anchor'] or ''})"

    return LINK.sub(rewrite, markdown)
