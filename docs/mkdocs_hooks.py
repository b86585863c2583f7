"""What mkdocs needs to know of this repository: pages that stand beside `docs/`, and source files.

Links in the pages are those of the repository, so that they work where it is browsed. On the site
the pages of the repository's root stand beside the others, and a source file that is linked to is
shown as a page of its own.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LANGUAGES = {".mjs": "javascript", ".proto": "protobuf", ".py": "python", ".toml": "toml"}
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and a page for every source file that some page links to."""
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    for page in list(files.documentation_pages()):
        for match in _LINK.finditer(page.content_string):
            path = _in_repository(page.src_uri, match[2])
            uri = _on_site(path)
            if uri.startswith("source/") and uri not in files.src_uris:
                files.append(File.generated(config, uri, content=_listing(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links of the repository into links of the site."""
    here = page.file.src_uri

    def turned(match: re.Match[str]) -> str:
        target = _on_site(_in_repository(here, match[2]))
        link = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"{match[1]}{link}{match[3] or ''}{match[4]}"

    return markdown if here.startswith("source/") else _LINK.sub(turned, markdown)


def _in_repository(page: str, link: str) -> str:
    """The path that a link of a page means, from the root of the repository."""
    folder = "" if page in PAGES else posixpath.join("docs", posixpath.dirname(page))
    return posixpath.normpath(posixpath.join(folder, link))


def _on_site(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path in PAGES or not (ROOT / path).is_file() else f"source/{path}.md"


def _listing(path: str) -> str:
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {Path(path).name}\n\n`{path}`\n\n````{language}\n{(ROOT / path).read_text()}````\n"
