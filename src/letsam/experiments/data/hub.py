"""GLUE from the Hugging Face hub by the `datasets` package, for those who ask for it: --source hf:nyu-mll/glue."""

from __future__ import annotations

from typing import Any

from .glue import Corpus, Example, Read, number_of

PREFIX = "hf:"
SPLITS = {"train": "train", "dev": "validation"}
MNLI_SPLITS = {"train": "train", "dev": "validation_matched", "mismatched": "validation_mismatched"}


def read(corpus: Corpus, repository: str) -> Read:
    """A task of a repository with a configuration for each."""
    load = _loader()
    splits = MNLI_SPLITS if "mismatched" in corpus.files else SPLITS
    try:
        found = {split: load(repository, corpus.name, split=name) for split, name in splits.items()}
    except Exception as error:  # whatever is wrong, at the hub or in a copy of it
        reason = " ".join(str(error).split())[:150]
        raise ValueError(f"{repository} has no {corpus.name} to read ({reason}); try --source FOLDER") from None
    return Read({split: _examples(corpus, rows, f"{repository}, {split}") for split, rows in found.items()})


def _loader() -> Any:
    try:
        from datasets import load_dataset
        from datasets.utils.logging import disable_progress_bar
    except ImportError:
        raise ValueError("--source hf:… needs the datasets package: pip install datasets, or --source FOLDER") from None
    disable_progress_bar()
    return load_dataset


def _examples(corpus: Corpus, rows: Any, where: str) -> list[Example]:
    """Labels of the hub are the numbers of the classes."""
    for name in (*corpus.hub, "label"):
        if name not in rows.column_names:
            raise ValueError(f"{where} has no column {name!r}: it is not {corpus.folder} as nyu-mll/glue has it")
    texts = zip(*(rows[name] for name in corpus.hub), strict=True)
    labels = [_label(corpus, label, f"{where}: row {i}") for i, label in enumerate(rows["label"])]
    return list(zip(texts, labels, strict=True))


def _label(corpus: Corpus, label: Any, where: str) -> float:
    if not corpus.classes:
        return number_of(corpus, str(label), where)
    if label not in range(len(corpus.classes)):
        raise ValueError(f"{where} has the label {label}, and {corpus.folder} has 0 to {len(corpus.classes) - 1}")
    return label
