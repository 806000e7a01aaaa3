"""Writes what the registry knows into the documentation, between `<!-- generated: … -->` and `<!-- end -->`.

python docs/generate.py            rewrite the blocks
python docs/generate.py --check    change nothing; exit 1 if a block is out of date
"""

import argparse
import re
import sys
from pathlib import Path

import letsam
from letsam.methods import PRESETS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "methods"
INDEXES = (ROOT / "README.md", FOLDER / "README.md")
FAMILIES = {"lets": "the radius of m learned as in the paper", "auto": "the radius of m learned, nothing to tune"}
COLUMNS = ("method", "what it does", "passes a step", "extra memory (parameter copies)", "default ρ", "paper")


def page_of(method: str) -> str:
    """The name of the page that describes a method: its own, or that of its family."""
    family = method.partition("-")[0]
    return family if family in FAMILIES else method


def method_table(links: str) -> str:
    """Every method a row, `lets-<m>` and `auto-<m>` one row each; `links` leads to the pages."""
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    for name, preset in PRESETS.items():
        method = letsam.describe(name)
        rho = "–" if preset.rho is None else f"{preset.rho:g}"
        cost = f"{method.passes:g}", f"{method.memory}"
        rows.append([f"[`{name}`]({links}{name}.md)", method.summary, *cost, rho, method.paper])
    rows += [_family_row(family, links) for family in FAMILIES]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _family_row(family: str, links: str) -> list[str]:
    members = [letsam.describe(name) for name in letsam.list_methods() if page_of(name) == family]
    first = members[0]
    share = first.defaults["initial"][0] / letsam.describe(first.name.removeprefix(f"{family}-")).defaults["rho"][0]
    rho = "that of m, at first" if share == 1 else f"{share:g} × that of m, at first"
    cost = _span([m.passes for m in members]), _span([m.memory for m in members])
    return [f"[`{family}-<m>`]({links}{family}.md)", FAMILIES[family], *cost, rho, first.paper.rpartition("; ")[2]]


def _span(values: list[float]) -> str:
    return " to ".join(f"{x:g}" for x in sorted({min(values), max(values)}))


def description(page: str) -> str:
    """What `letsam describe` prints, as a code block; a family shows its member on SAM."""
    name = f"{page}-sam" if page in FAMILIES else page
    return f"```text\n$ letsam describe {name}\n{letsam.describe(name)}\n```"


def with_block(text: str, kind: str, content: str) -> str:
    """The text with the content between the markers of that kind; unchanged if it has no such markers."""
    block = re.compile(rf"(<!-- generated: {kind} -->\n).*?(<!-- end -->)", re.DOTALL)
    return block.sub(lambda markers: f"{markers[1]}\n{content}\n\n{markers[2]}", text)


def generated() -> dict[Path, str]:
    """Every file that can hold a block, as it should be."""
    files = {}
    for index in INDEXES:
        links = "" if index.parent == FOLDER else "docs/methods/"
        files[index] = with_block(index.read_text(encoding="utf-8"), "methods", method_table(links))
    for page in sorted(FOLDER.glob("*.md")):
        if page not in INDEXES:
            files[page] = with_block(page.read_text(encoding="utf-8"), "describe", description(page.stem))
    return files


def main() -> int:
    """Rewrite or check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the generated blocks of README.md and docs/methods.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a block is out of date")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in generated().items() if path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is out of date: run python docs/generate.py' if check else 'rewritten'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
