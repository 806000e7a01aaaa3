"""GLUE: the benchmark's eight tasks that the paper fine-tunes on, and its TSV files.

A file is read as the benchmark writes it: tab-separated, a line an example, nothing quoted. CoLA's files have no line
of names. The metric that a table shows is the first one; the order of the classes is that of the Hugging Face hub.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

Example = tuple[tuple[str, ...], float]
"""A sentence or two, and the number of the class, or the score."""


@dataclass(frozen=True)
class Corpus:
    """A task: where its files are, what their columns mean, and how many examples they have."""

    name: str
    folder: str
    columns: tuple[str, ...]
    """All columns of the files, in their order."""
    sentences: tuple[str, ...]
    """The columns with the sentence or the two sentences."""
    label: str
    classes: tuple[str, ...]
    """Labels in the files, in the order of their numbers; none: the label is a score from 0 to 5."""
    counts: dict[str, int]
    """Examples of each split as published."""
    metrics: tuple[str, ...] = ("test_accuracy",)
    named: bool = True
    """Whether the first line of a file has the names of the columns."""
    dev_columns: tuple[str, ...] = ()
    """Those of the development sets, where they are others."""
    files: dict[str, str] = field(default_factory=lambda: {"train": "train.tsv", "dev": "dev.tsv"})
    hub: tuple[str, ...] = ("sentence1", "sentence2")
    """The columns with the sentences in the hub's version."""

    def columns_of(self, split: str) -> tuple[str, ...]:
        """The columns of the file of a split."""
        return self.columns if split == "train" else self.dev_columns or self.columns

    def is_whole(self, split: str, examples: int, empty: int) -> bool:
        """Whether a split is the published one: a development set has every example, since the metric is about them; a
        training set may have a share more or less, and both may have as large a share without some sentence."""
        published = self.counts[split]
        off = abs(examples - published)
        return off <= (MARGIN * published if split == "train" else 0) and empty <= MARGIN * published


YES_NO, ENTAILED, LARGEST = ("0", "1"), ("entailment", "not_entailment"), 5.0
MARGIN = 0.01
"""The share: MRPC is often found with a row or two fewer than published."""
PAIR = ("sentence1", "sentence2")
MNLI_FILES = {"train": "train.tsv", "dev": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"}
MNLI_PARSES = ("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse")
MNLI_FIRST = ("index", "promptID", "pairID", "genre", *MNLI_PARSES, *PAIR)
STSB_FIRST = ("index", "genre", "filename", "year", "old_index", "source1", "source2")
GLUE = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            *("cola", "CoLA", ("source", "label", "star", "sentence"), ("sentence",), "label", YES_NO),
            counts={"train": 8_551, "dev": 1_043},
            metrics=("matthews", "test_accuracy"),
            named=False,
            hub=("sentence",),
        ),
        Corpus(
            *("sst2", "SST-2", ("sentence", "label"), ("sentence",), "label", YES_NO),
            counts={"train": 67_349, "dev": 872},
            hub=("sentence",),
        ),
        Corpus(
            *("mrpc", "MRPC", ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), ("#1 String", "#2 String")),
            *("Quality", YES_NO),
            counts={"train": 3_668, "dev": 408},
            metrics=("test_accuracy", "f1"),
        ),
        Corpus(
            *("stsb", "STS-B", (*STSB_FIRST, *PAIR, "score"), PAIR, "score", ()),
            counts={"train": 5_749, "dev": 1_500},
            metrics=("pearson", "spearman"),
        ),
        Corpus(
            *("qqp", "QQP", ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")),
            *(("question1", "question2"), "is_duplicate", YES_NO),
            counts={"train": 363_846, "dev": 40_430},
            metrics=("test_accuracy", "f1"),
            hub=("question1", "question2"),
        ),
        Corpus(
            *("mnli", "MNLI", (*MNLI_FIRST, "label1", "gold_label"), PAIR, "gold_label"),
            classes=("entailment", "neutral", "contradiction"),
            counts={"train": 392_702, "dev": 9_815, "mismatched": 9_832},
            metrics=("test_accuracy", "mismatched_accuracy"),
            dev_columns=(*MNLI_FIRST, *(f"label{i}" for i in range(1, 6)), "gold_label"),
            files=MNLI_FILES,
            hub=("premise", "hypothesis"),
        ),
        Corpus(
            *("qnli", "QNLI", ("index", "question", "sentence", "label"), ("question", "sentence"), "label", ENTAILED),
            counts={"train": 104_743, "dev": 5_463},
            hub=("question", "sentence"),
        ),
        Corpus(
            *("rte", "RTE", ("index", *PAIR, "label"), PAIR, "label", ENTAILED), counts={"train": 2_490, "dev": 277}
        ),
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
        found, broken = _read_file(corpus, split, folder / name)
        if broken and split != "train":
            raise ValueError(f"{folder / name}: line {broken[0]} has not as many fields as columns: get it again")
        if not found:
            raise ValueError(f"{folder / name} has no example: get it again")
        examples[split], left_out = found, left_out + len(broken)
    return Read(examples, left_out)


def check_apart(corpus: Corpus, examples: dict[str, list[Example]]) -> None:
    """ValueError if a development set lies in the training set: its metric would be about what was trained on."""
    known = {texts for texts, _ in examples["train"]}
    for split, part in examples.items():
        if split != "train" and all(texts in known for texts, _ in part):
            raise ValueError(
                f"every example of {corpus.folder}, {corpus.files[split]}, is in {corpus.files['train']}, too: get the "
                "benchmark's own files"
            )


def empty(texts: Iterable[tuple[str, ...]]) -> int:
    """How many examples have a sentence without a word."""
    return sum(not all(sentence.strip() for sentence in sentences) for sentences in texts)


def missing(corpus: Corpus, folder: Path) -> list[str]:
    """The files that a folder lacks."""
    return [name for name in corpus.files.values() if not (folder / name).is_file()]


def _read_file(corpus: Corpus, split: str, path: Path) -> tuple[list[Example], list[int]]:
    """(examples, numbers of the lines that are none)."""
    lines, names = _lines(path), corpus.columns_of(split)
    if corpus.named:
        _check_header(names, lines[0], path)
    columns = [names.index(name) for name in (*corpus.sentences, corpus.label)]
    examples, broken = [], []
    for number, line in enumerate(lines, 1):
        fields = line.split("\t")
        if number == 1 and corpus.named:
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


def _check_header(names: tuple[str, ...], line: str, path: Path) -> None:
    """All columns at their places: under a name that was changed there are other sentences, and nobody would notice."""
    found = line.split("\t")
    for i, name in enumerate(names):
        if found[i : i + 1] != [name]:
            there = repr(found[i][:40]) if found[i:] else "nothing"
            raise ValueError(f"{path} has {there} as column {i + 1}, not {name!r}: get the benchmark's own file")
    if found[len(names) :]:
        raise ValueError(f"{path} has {len(found)} columns, not {len(names)}: get the benchmark's own file")
