"""Every method has a page with every part, every page leads somewhere, every public name says what it is."""

import re
from pathlib import Path

import pytest

import letsam

ROOT = Path(__file__).resolve().parents[2]
METHODS = ROOT / "docs" / "methods"
PAGES = sorted(page for page in METHODS.glob("*.md") if page.name != "README.md")
DOCS = sorted((ROOT / "docs").glob("*.md"))
PARTS = ("Equation", "Use", "Defaults", "Cost", "When it does not help", "Deviations")


def page_of(method):
    family = method.partition("-")[0]
    return METHODS / f"{family if family in ('lets', 'auto') else method}.md"


@pytest.mark.parametrize("name", letsam.list_methods())
def test_every_method_has_a_page(name):
    assert page_of(name).is_file()


def test_every_page_belongs_to_a_method():
    assert set(PAGES) == {page_of(name) for name in letsam.list_methods()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_every_part(page):
    text = page.read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == PARTS
    assert "<!-- generated: describe -->" in text
    assert "```python" in text


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *DOCS, METHODS / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("name", letsam.__all__)
def test_every_public_name_has_a_docstring(name):
    doc = getattr(letsam, name).__doc__
    assert doc, f"letsam.{name} has no docstring"
    assert not doc.startswith(f"{name}("), f"letsam.{name} has only the docstring that dataclass makes"
