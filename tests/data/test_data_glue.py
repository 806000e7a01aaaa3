"""GLUE's files: every task, quotes, marks and line ends; bad files; what is stored and loaded; the hub's version."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from letsam.cli import main
from letsam.experiments.data.glue import GLUE, read
from letsam.experiments.recipe import Training
from letsam.experiments.seen import PARTIAL, seen
from letsam.experiments.source import load
from small_glue import examples, lines_of, write_task

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "place"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "place"


def fails(capsys: Capture, *arguments: str) -> str:
    assert main(["data", "glue", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("letsam: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("name", GLUE)
def test_every_task_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    found = read(GLUE[name], write_task(tmp_path, name)).examples
    splits = ["train", "dev", "mismatched"] if name == "mnli" else ["train", "dev"]
    assert list(found) == splits
    for i, split in enumerate(splits):
        written = examples(name, 12 if split == "train" else 6, seed=i)
        assert [texts for texts, _ in found[split]] == [tuple(texts) for texts, _ in written]
        classes = GLUE[name].classes
        labels = [classes.index(label) if classes else float(label) for _, label in written]
        assert [label for _, label in found[split]] == labels


def test_quotes_are_letters_and_strange_line_ends_are_none(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "sst2")
    lines = ['" begins a quote\t1', 'never " ends\t0', "a\u2028b\t1", "last \t0"]
    (folder / "dev.tsv").write_bytes("\r\n".join(["sentence\tlabel", *lines]).encode())
    found = read(GLUE["sst2"], folder).examples["dev"]
    assert found == [(('" begins a quote',), 1), (('never " ends',), 0), (("a\u2028b",), 1), (("last ",), 0)]


def test_a_file_without_a_last_newline_has_its_last_line(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "cola", dev=4)
    (folder / "dev.tsv").write_text((folder / "dev.tsv").read_text().removesuffix("\n"))
    assert len(read(GLUE["cola"], folder).examples["dev"]) == 4


BAD = [
    ("rte", "label", "lable", "RTE/dev.tsv has 'lable' as column 4, not 'label'"),
    ("rte", "\tlabel", "", "RTE/dev.tsv has nothing as column 4, not 'label'"),
    ("rte", "label", "label\tmore", "RTE/dev.tsv has 5 columns, not 4"),
    ("rte", "sentence1\tsentence2", "sentence2\tsentence1", "has 'sentence2' as column 2, not 'sentence1'"),
    ("stsb", "genre", "sentence1", "STS-B/dev.tsv has 'sentence1' as column 2, not 'genre'"),
    ("mrpc", "#2 String", "String 2", "MRPC/dev.tsv has 'String 2' as column 5, not '#2 String'"),
    ("mnli", "gold_label", "gold", "MNLI/dev_matched.tsv has 'gold' as column 16, not 'gold_label'"),
    ("rte", "\tentailment\n", "\tmaybe\n", "has the label 'maybe', and RTE has entailment, not_entailment"),
    ("cola", "x\t1\tx", "x\t2\tx", "has the label '2', and CoLA has 0, 1"),
    ("stsb", "5.000", "7.5", "has the score '7.5', and STS-B has scores from 0 to 5"),
    ("stsb", "5.000", "nan", "has the score 'nan'"),
    ("qnli", "\nx\t", "\n", "QNLI/dev.tsv: line 2 has not as many fields as columns"),
]


@pytest.mark.parametrize(("name", "old", "new", "line"), BAD)
def test_bad_files(tmp_path: Path, place: Path, capsys: Capture, name: str, old: str, new: str, line: str) -> None:
    path = write_task(tmp_path / "glue", name, dev=9) / GLUE[name].files["dev"]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert line in fails(capsys, "--source", "glue")
    assert not (place / name).exists()


def test_a_training_set_is_no_development_set(tmp_path: Path, place: Path, capsys: Capture) -> None:
    folder = write_task(tmp_path / "glue", "rte")
    header, *lines = (folder / "train.tsv").read_text().splitlines()
    (folder / "dev.tsv").write_text("\n".join([header, *reversed(lines)]))
    assert "every example of RTE, dev.tsv, is in train.tsv, too" in fails(capsys, "--source", "glue")
    assert not (place / "rte").exists()


def test_what_is_not_as_published_is_told(tmp_path: Path, place: Path, capsys: Capture) -> None:
    """The training set lacks a row, which is noted and no more; the development set is cut, and has empty sentences."""
    folder = write_task(tmp_path / "glue", "rte", n=2489, dev=277)
    assert main(["data", "glue", "--source", "glue"]) == 0
    out = capsys.readouterr().out
    assert "note: RTE, train: 2,489 examples where 2,490 are published\n" in out
    assert "RTE, dev" not in out
    assert PARTIAL not in seen(Training(data="rte", model="some/encoder"), *load("rte", None, "cpu"))
    lines = (folder / "dev.tsv").read_text().splitlines()[:41]
    (folder / "dev.tsv").write_text("\n".join([*lines[:-2], "1\t\t \tentailment", "2\tgood\t\tnot_entailment"]))
    (place / "rte").rename(tmp_path / "before")
    assert main(["data", "glue", "--source", "glue"]) == 0
    line = "note: RTE, dev: 40 examples where 277 are published, 2 with an empty sentence; runs on it count as"
    assert line in capsys.readouterr().out.replace("\n", " ")
    assert seen(Training(data="rte", model="some/encoder"), *load("rte", None, "cpu"))[PARTIAL]


@pytest.mark.parametrize(
    ("split", "examples", "empty", "whole"),
    [
        *(("dev", 408, 4, True), ("dev", 407, 0, False), ("dev", 409, 0, False), ("dev", 408, 5, False)),
        *(("train", 3632, 0, True), ("train", 3631, 0, False), ("train", 3668, 37, False)),
    ],
)
def test_which_splits_are_the_published_ones(split: str, examples: int, empty: int, whole: bool) -> None:
    assert GLUE["mrpc"].is_whole(split, examples, empty) is whole


def test_files_of_another_kind(tmp_path: Path, place: Path, capsys: Capture) -> None:
    folder = write_task(tmp_path / "glue", "cola", n=40)
    (folder / "train.tsv").write_text("\n".join(f"A sentence, {i}" for i in range(40)))
    assert "40 of 40 lines have not 4 fields" in fails(capsys, "--source", "glue")
    (folder / "train.tsv").write_bytes(gzip.compress(b"a\t1\tb\tc\n"))
    assert "train.tsv cannot be read (UnicodeDecodeError)" in fails(capsys, "--source", "glue")
    (folder / "train.tsv").write_text("")
    assert "has no example" in fails(capsys, "--source", "glue")


def test_some_broken_training_lines_are_counted(tmp_path: Path, place: Path, capsys: Capture) -> None:
    folder = write_task(tmp_path / "glue", "qqp")
    with (folder / "train.tsv").open("a") as file:
        file.write("12\t13\n14\n")
    assert main(["data", "glue", "--source", "glue"]) == 0
    assert "QQP: 2 training lines with too few fields left out" in capsys.readouterr().out
    assert len(load("qqp", None, "cpu")[0].labels) == 12


def test_what_is_stored_is_what_is_loaded(tmp_path: Path, place: Path, capsys: Capture) -> None:
    for name in GLUE:
        write_task(tmp_path / "glue", name)
    (tmp_path / "glue" / "QNLI" / "train.tsv").unlink()
    assert main(["data", "glue", "--source", "glue"]) == 0
    out = capsys.readouterr().out
    assert "QNLI has no train.tsv, so it is left out" in out
    assert out.count("not there") == 1
    train, dev = load("mnli", None, "cpu")
    found = read(GLUE["mnli"], tmp_path / "glue" / "MNLI").examples
    assert list(train.texts) == [texts for texts, _ in found["train"]]
    assert dev.labels.tolist() == [label for _, label in found["dev"]]
    assert dev.mismatched is not None
    assert list(dev.mismatched.texts) == [texts for texts, _ in found["mismatched"]]
    scores = load("stsb", None, "cpu")[0].labels
    assert (scores.dtype, train.labels.dtype) == (torch.float32, torch.int64)
    with pytest.raises(ValueError, match=r"there is no QNLI in .*letsam data glue --source FOLDER"):
        load("qnli", None, "cpu")
    write_task(tmp_path / "glue", "qnli")
    assert main(["data", "glue", "--source", "glue"]) == 0  # what was missing is added, the rest stays
    assert "RTE is there and whole" in capsys.readouterr().out
    assert len(load("qnli", None, "cpu")[0]) == 12


def test_a_damaged_task(tmp_path: Path, place: Path, capsys: Capture) -> None:
    write_task(tmp_path / "glue", "rte")
    assert main(["data", "glue", "--source", "glue"]) == 0
    path = place / "rte" / "sentences.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"damaged \(wrong sha256\): run letsam data glue"):
        load("rte", None, "cpu")
    assert main(["data", "glue", "--source", "glue"]) == 0
    assert len(load("rte", None, "cpu")[0]) == 12


def test_nothing_there_or_another_folder(tmp_path: Path, place: Path, capsys: Capture) -> None:
    assert "give --source a folder with CoLA, SST-2" in fails(capsys)
    folder = write_task(tmp_path / "glue", "rte")
    assert "give --source the folder that they are in" in fails(capsys, "--source", str(folder))


def write_hub(folder: Path, name: str) -> None:
    """A copy of the hub's layout: a configuration for each task, labels as numbers."""
    corpus, configs = GLUE[name], []
    dev = ("validation_matched", "validation_mismatched") if name == "mnli" else ("validation",)
    (folder / name).mkdir(parents=True)
    for i, word in enumerate(("train", *dev)):
        rows = []
        for texts, label in examples(name, 4, seed=i):
            number = corpus.classes.index(label) if corpus.classes else float(label)
            rows.append(dict(zip(corpus.hub, texts, strict=True)) | {"label": number, "idx": len(rows)})
        (folder / name / f"{word}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        configs.append(f"  - split: {word}\n    path: {name}/{word}.jsonl")
    with (folder / "README.md").open("a") as file:
        file.write(f"- config_name: {name}\n  data_files:\n" + "\n".join(configs) + "\n")


def test_the_version_of_the_hub(tmp_path: Path, place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "README.md").write_text("---\nconfigs:\n")
    for name in GLUE:
        write_hub(copy, name)
    with (copy / "README.md").open("a") as file:
        file.write("---\n")
    assert main(["data", "glue", "--source", f"hf:{copy}"]) == 0
    assert "not there" not in capsys.readouterr().out
    for name in GLUE:
        write_task(tmp_path / "glue", name, n=4)
        found = read(GLUE[name], tmp_path / "glue" / GLUE[name].folder).examples["train"]
        train, _ = load(name, None, "cpu")
        assert list(train.texts) == [texts for texts, _ in found]
        assert train.labels.tolist() == pytest.approx([label for _, label in found])
    assert "has no cola to read" in fails(capsys, "--folder", "other", "--source", "hf:no/such/thing")


def test_lines_are_those_of_the_benchmark() -> None:
    """The columns of the small files, where the real ones are not at hand."""
    assert lines_of("mnli", "dev", [(["a", "b"], "neutral")])[1].split("\t")[8:10] == ["a", "b"]
    assert lines_of("qqp", "train", [(["a", "b"], "1")]) == [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "x\tx\tx\ta\tb\t1",
    ]
