"""`letsam data` for parallel text: read, count, learn the vocabulary, store, say what there is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import pairs, store
from .parallel import CORPORA, read
from .progress import note

WORDS = {"empty": "with an empty side", "too long": f"of more than {pairs.LONGEST} tokens"}


def new(name: str, place: Path, source: Path | None, console: Console) -> store.Facts:
    """The set of the user's folder, read and cut into pieces before anything is written."""
    named, facts = pairs.make(CORPORA[name], read(CORPORA[name], source))
    for split, part in facts["splits"].items():
        for why, count in part["left_out"].items():
            if count:
                note(console, f"note: {split}: {count:,} {'pair' if count == 1 else 'pairs'} {WORDS[why]} left out")
    if empty := facts["splits"]["test"]["empty"]:
        note(console, f"note: test: {empty:,} {'pair' if empty == 1 else 'pairs'} {WORDS['empty']} kept")
    with store.opened(place):
        return store.save_tensors(place, named, facts, pairs.FILE)


def show(facts: store.Facts, console: Console) -> None:
    """Pairs of each split, and their hash."""
    table = Table(title=f"{facts['title']}, {facts['vocabulary']:,} pieces", title_justify="left")
    for heading in ("split", "pairs", "left out", "sha256 of the text"):
        table.add_column(heading, justify="right" if heading in ("pairs", "left out") else "left")
    for split, part in facts["splits"].items():
        left_out = sum(part["left_out"].values())
        table.add_row(split, f"{part['pairs']:,}", f"{left_out:,}", part["text_sha256"][:16])
    console.print(table)
