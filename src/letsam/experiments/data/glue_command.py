"""`letsam data glue`: read every task that the source has, count, store, say what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import hub, sentences, store
from .glue import GLUE, Corpus, Read, missing, read
from .progress import note


def data(place: Path, source: Path | None, console: Console) -> None:
    """Store the tasks of the source that are not there yet; print a table of those that are there."""
    there = {name: _there(place, name, console) for name in GLUE}
    if source is not None:
        for corpus, found, origin in _found(source, there, console):
            with store.opened(place):
                named, facts = sentences.make(corpus, found, origin)
                there[corpus.name] = store.save_tensors(place, named, facts, sentences.FILE)
            if found.left_out:
                note(console, f"note: {corpus.folder}: {found.left_out:,} training lines with too few fields left out")
    if not any(there.values()):
        folders = ", ".join(corpus.folder for corpus in GLUE.values())
        raise ValueError(f"there is no task of GLUE in {place}: give --source a folder with {folders}, or some of them")
    console.print(_table(there))
    for name, stored in there.items():
        for line in _departures(GLUE[name], stored):
            note(console, line)
    note(console, f"folder {place}")


def _there(place: Path, name: str, console: Console) -> store.Facts | None:
    try:
        return store.read_facts(place, name, sentences.FILE)
    except store.Damaged as damage:
        note(console, f"note: {damage}; give --source to get it anew")
        return None


def _found(
    source: Path, there: dict[str, store.Facts | None], console: Console
) -> Iterator[tuple[Corpus, Read, dict[str, str]]]:
    """(task, its examples, where they come from) of every task that the source has in whole."""
    repository = str(source).removeprefix(hub.PREFIX) if str(source).startswith(hub.PREFIX) else None
    if repository is None and not any((source / corpus.folder).is_dir() for corpus in GLUE.values()):
        folders = ", ".join(corpus.folder for corpus in GLUE.values())
        raise ValueError(f"{source} has none of the folders {folders}: give --source the folder that they are in")
    for name, corpus in GLUE.items():
        if there[name] is not None:
            note(console, f"note: {corpus.folder} is there and whole, --source was not read; remove it to replace it")
        elif repository is not None:
            yield corpus, hub.read(corpus, repository), {"kind": "Hugging Face datasets", "name": repository}
        elif (source / corpus.folder).is_dir():
            if lacking := missing(corpus, source / corpus.folder):
                note(console, f"note: {corpus.folder} has no {', '.join(lacking)}, so it is left out")
                continue
            yield corpus, read(corpus, source / corpus.folder), {"kind": "TSV files", "name": source.resolve().name}


def _departures(corpus: Corpus, facts: store.Facts | None) -> Iterator[str]:
    """In which splits a stored task is not the published one, and what follows from it."""
    for split, part in facts["splits"].items() if facts else ():
        examples, published, empty = part["examples"], corpus.counts[split], part.get("empty", 0)
        what = [f"{examples:,} examples where {published:,} are published"] if examples != published else []
        what += [f"{empty:,} with an empty sentence"] if empty else []
        follows = "" if corpus.is_whole(split, examples, empty) else "; runs on it count as runs on a part of the set"
        if what:
            yield f"note: {corpus.folder}, {split}: {', '.join(what)}{follows}"


def _table(there: dict[str, store.Facts | None]) -> Table:
    table = Table(title="GLUE", title_justify="left")
    for heading in ("task", "split", "examples", "sha256 of the text"):
        table.add_column(heading, justify="right" if heading == "examples" else "left")
    for name, facts in there.items():
        if facts is None:
            table.add_row(GLUE[name].folder, "not there", "–", "–")
            continue
        for split, part in facts["splits"].items():
            table.add_row(facts["title"], split, f"{part['examples']:,}", part["text_sha256"][:16])
    return table
