"""GLUE: the benchmark's eight tasks that the paper fine-tunes on, and its TSV files.

A file is read as the benchmark writes it: tab-separated, a line an example, nothing quoted. CoLA's files have no line
of names. The metric that a table shows is the first one; the order of the classes is that of the Hugging Face hub.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

Example = tuple[tuple[str, ...], float]
"""A sentence or two, and the number of the class, or the score."""


@dataclass(frozen=True)
class Corpus:
    """A task: where its files are and what their columns mean."""

    name: str
    folder: str
    sentences: tuple[str, ...]
    """The columns with the sentence or the two sentences."""
    label: str
    classes: tuple[str, ...]
    """Labels in the files, in the order of their numbers; none: the label is a score from 0 to 5."""
    metrics: tuple[str, ...] = ("test_accuracy",)
    names: tuple[str, ...] | None = None
    """The columns of files that do not name them."""
    files: dict[str, str] = field(default_factory=lambda: {"train": "train.tsv", "dev": "dev.tsv"})
    hub: tuple[str, ...] = ("sentence1", "sentence2")
    """The columns with the sentences in the hub's version."""


YES_NO, ENTAILED, LARGEST = ("0", "1"), ("entailment", "not_entailment"), 5.0
PAIR = ("sentence1", "sentence2")
MNLI_FILES = {"train": "train.tsv", "dev": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"}
GLUE = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            *("cola", "CoLA", ("sentence",), "label", YES_NO, ("matthews", "test_accuracy")),
            names=("source", "label", "star", "sentence"),
            hub=("sentence",),
        ),
        Corpus("sst2", "SST-2", ("sentence",), "label", YES_NO, hub=("sentence",)),
        Corpus("mrpc", "MRPC", ("#1 String", "#2 String"), "Quality", YES_NO, ("test_accuracy", "f1")),
        Corpus("stsb", "STS-B", PAIR, "score", (), ("pearson", "spearman")),
        Corpus(
            *("qqp", "QQP", ("question1", "question2"), "is_duplicate", YES_NO, ("test_accuracy", "f1")),
            hub=("question1", "question2"),
        ),
        Corpus(
            *("mnli", "MNLI", PAIR, "gold_label", ("entailment", "neutral", "contradiction")),
            metrics=("test_accuracy", "mismatched_accuracy"),
            files=MNLI_FILES,
            hub=("premise", "hypothesis"),
        ),
        Corpus("qnli", "QNLI", ("question", "sentence"), "label", ENTAILED, hub=("question", "sentence")),
        Corpus("rte", "RTE", PAIR, "label", ENTAILED),
    )
}


@dataclass(frozen=True)
class Read:
    """The examples of every split, and how many lines of the training file were no examples."""

    examples: dict[str, list[Example]]
    left_out: int = 0


def read(corpus: Corpus, folder: Path) -> Read:
    """A task from its folder; ValueError with one line if anything is wrong.

    QQP's own training file has some lines with too few fields, which are left out, as is usual; a line like that in
    a development set would change the metric, and is an error.
    """
    examples, left_out = {}, 0
    for split, name in corpus.files.items():
        found, broken = _read_file(corpus, folder / name)
        if broken and split != "train":
            raise ValueError(f"{folder / name}: line {broken[0]} has not as many fields as columns: get it again")
        if not found:
            raise ValueError(f"{folder / name} has no example: get it again")
        examples[split], left_out = found, left_out + len(broken)
    return Read(examples, left_out)


def missing(corpus: Corpus, folder: Path) -> list[str]:
    """The files that a folder lacks."""
    return [name for name in corpus.files.values() if not (folder / name).is_file()]


def _read_file(corpus: Corpus, path: Path) -> tuple[list[Example], list[int]]:
    """(examples, numbers of the lines that are none)."""
    lines = _lines(path)
    names = corpus.names or tuple(lines[0].split("\t"))
    columns = [_column(names, name, path) for name in (*corpus.sentences, corpus.label)]
    examples, broken = [], []
    for number, line in enumerate(lines, 1):
        fields = line.split("\t")
        if number == 1 and corpus.names is None:
            continue
        if len(fields) != len(names):
            broken.append(number)
            continue
        *sentences, label = (fields[i] for i in columns)
        examples.append((tuple(sentences), number_of(corpus, label, f"{path}: line {number}")))
    if len(broken) > max(10, len(lines) // 100):
        raise ValueError(
            f"{path}: {len(broken):,} of {len(lines):,} lines have not {len(names)} fields, the first is line "
            f"{broken[0]}: it is not {corpus.folder} in the benchmark's format, get it again"
        )
    return examples, broken


def number_of(corpus: Corpus, label: str, where: str) -> float:
    """The number of a class, or the score; ValueError if it is neither."""
    if corpus.classes:
        if label not in corpus.classes:
            raise ValueError(f"{where} has the label {label!r}, and {corpus.folder} has {', '.join(corpus.classes)}")
        return corpus.classes.index(label)
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not 0 <= score <= LARGEST:
        raise ValueError(f"{where} has the score {label!r}, and {corpus.folder} has scores from 0 to {LARGEST:g}")
    return score


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}): get it again") from None
    # Not splitlines(), which also cuts at characters that are no ends of lines, such as U+2028.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _column(names: tuple[str, ...], name: str, path: Path) -> int:
    if name not in names:
        found = ", ".join(names)
        raise ValueError(f"{path} has no column {name!r} (it has {found[:100]}): get the benchmark's own file")
    return names.index(name)
