"""Parallel text: what is read, counted, stored and loaded; bad files; text and pieces and text again."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from letsam.cli import main
from letsam.experiments.data import bpe, pairs
from letsam.experiments.data.parallel import CORPORA, read
from letsam.experiments.source import load
from letsam.experiments.training import TEXT

Capture = pytest.CaptureFixture[str]
GERMAN = ["Zwei Männer sind im Freien .", "Ein Mädchen klettert .", "Ein Hund läuft schnell .", "Zwei Hunde ."]
ENGLISH = ["Two men are outside .", "A girl climbs .", "A dog runs fast .", "Two dogs ."]


def write(
    folder: Path, name: str, german: list[str] = GERMAN, english: list[str] = ENGLISH, packed: bool = False
) -> Path:
    folder.mkdir(exist_ok=True)
    for word in CORPORA[name].files.values():
        for language, lines in (("de", german), ("en", english)):
            content = "".join(f"{line}\n" for line in lines).encode()
            suffix = ".gz" if packed else ""
            (folder / f"{word}.{language}{suffix}").write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LETSAM_DATA", str(tmp_path / "place"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "place"


def fails(capsys: Capture, *arguments: str) -> str:
    assert main(["data", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("letsam: ")
    assert error.count("\n") == 1
    return error


def text(part: pairs.Pairs, side: pairs.Side) -> list[str]:
    rows = side.rows(torch.arange(len(part)), int(side.lengths.max()))
    return bpe.decode(part.tokenizer, rows.tolist())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CORPORA)
def test_a_set_is_stored_shown_and_loaded(
    name: str, packed: bool, place: Path, tmp_path: Path, capsys: Capture
) -> None:
    source = write(tmp_path / "mine", name, packed=packed)
    assert main(["data", name, "--source", str(source)]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in ("DE-EN", "train", "valid", "test", "parallel text mine", str(place)))
    assert ("not the published training text" in out) is (name == "multi30k")
    assert sorted(path.name for path in (place / name).iterdir()) == ["pairs.safetensors", "source.json"]
    train, test = load(name, None, "cpu")
    assert train.held_out is not None
    for part in (train, train.held_out, test):
        assert text(part, part.source) == GERMAN
        assert text(part, part.target) == ENGLISH
        assert bool((part.source.rows(torch.arange(4), 40) == bpe.EOS).sum(1).eq(1).all())
    assert test.references == tuple(ENGLISH)
    assert train.vocabulary == train.tokenizer.get_vocab_size()
    assert text(train.subset(torch.tensor([2])), train.subset(torch.tensor([2])).source) == GERMAN[2:3]
    before = (place / name / "pairs.safetensors").read_bytes()
    assert main(["data", name]) == 0
    assert main(["data", name, "--source", "anything"]) == 0
    assert "--source was not read" in capsys.readouterr().out
    assert (place / name / "pairs.safetensors").read_bytes() == before


def test_recipes_and_sets_have_the_same_names() -> None:
    assert tuple(CORPORA) == TEXT


def test_the_same_text_makes_the_same_file(tmp_path: Path) -> None:
    corpus = CORPORA["iwslt14"]
    source = write(tmp_path / "mine", "iwslt14")
    one, two = (pairs.make(corpus, read(corpus, source)) for _ in range(2))
    assert one[1] == two[1]
    assert all(torch.equal(tensor, two[0][key]) for key, tensor in one[0].items())


def test_empty_and_long_pairs_are_counted_and_left_out_but_for_the_test(
    place: Path, tmp_path: Path, capsys: Capture
) -> None:
    german = [*GERMAN, "", "Nur hier .", "  ", "Ein Hund " * 100]
    english = [*ENGLISH, "Only here .", "", "", "A dog " * 30]
    source = write(tmp_path / "mine", "iwslt14", german, english)
    assert main(["data", "iwslt14", "--source", str(source)]) == 0
    out = capsys.readouterr().out
    assert "note: train: 3 pairs with an empty side left out" in out
    assert "note: train: 1 pair of more than 175 tokens left out" in out
    facts = json.loads((place / "iwslt14" / "source.json").read_text())
    assert facts["splits"]["train"]["left_out"] == {"empty": 3, "too long": 1}
    assert "note: test: 3 pairs with an empty side kept" in out
    nothing = {"empty": 0, "too long": 0}
    assert facts["splits"]["test"] == {**facts["splits"]["test"], "pairs": 8, "empty": 3, "left_out": nothing}
    train, test = load("iwslt14", None, "cpu")
    assert (len(train), len(test), test.references) == (4, 8, tuple(map(str.strip, english)))
    assert test.source.lengths.tolist()[4:7:2] == [1, 1]  # EOS alone


def test_pieces_are_put_together_and_odd_characters_are_no_ends_of_lines(tmp_path: Path) -> None:
    german = ["zwei mä@@ nner sind drau@@ ßen .", "ein\u2028hund .\r", "a b"]
    source = write(tmp_path / "mine", "iwslt14", german, ["two m@@ en are out@@", "a\x85dog .", "c"])
    found = read(CORPORA["iwslt14"], source).texts["train"]
    assert found == (["zwei männer sind draußen .", "ein hund .", "a b"], ["two men are out", "a dog .", "c"])


def test_raw_text_comes_back_with_its_spaces(tmp_path: Path) -> None:
    sentences = ["A man's \"hat\" (red), isn't it?", "No-one is here... 3.5 km!", "one , two"]
    tokenizer = bpe.learn(sentences * 3)
    assert bpe.decode(tokenizer, bpe.encode(tokenizer, sentences)) == sentences
    assert bpe.UNKNOWN in bpe.encode(tokenizer, ["ж"])[0]


def test_wrong_files_are_one_line_and_write_nothing(place: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "cannot be fetched: give --source a folder with train.de, train.en, valid.de" in fails(capsys, "iwslt14")
    assert "Multi30k DE-EN is not in nowhere" in fails(capsys, "multi30k", "--source", "nowhere")
    source = write(tmp_path / "mine", "multi30k")
    (source / "val.en").unlink()
    assert "val.en (or .gz) is missing" in fails(capsys, "multi30k", "--source", str(source))
    (source / "val.en").write_text("one\n")
    assert "val.de has 4 lines and val.en 1" in fails(capsys, "multi30k", "--source", str(source))
    (source / "val.en").write_bytes(b"\xff\xfe\n" * 4)
    assert "val.en is damaged" in fails(capsys, "multi30k", "--source", str(source))
    (source / "val.en").unlink()
    (source / "val.en.gz").write_bytes(gzip.compress(b"one\n")[:-3])
    assert "val.en.gz is damaged" in fails(capsys, "multi30k", "--source", str(source))
    (source / "val.en.gz").write_bytes(gzip.compress(b"\n\n\n\n"))
    assert "val.de has no sentence" in fails(capsys, "multi30k", "--source", str(source))
    (source / "val.en.gz").write_bytes(gzip.compress(b"very long " * 200 + b"\n\n\n\n"))
    assert "every valid pair has more than 175 tokens" in fails(capsys, "multi30k", "--source", str(source))
    assert not place.exists()
    with pytest.raises(ValueError, match="run letsam data multi30k --source FOLDER first"):
        load("multi30k", None, "cpu")


def test_damage_is_noticed(place: Path, tmp_path: Path, capsys: Capture) -> None:
    source = write(tmp_path / "mine", "multi30k")
    assert main(["data", "multi30k", "--source", str(source)]) == 0
    path = place / "multi30k" / "pairs.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"damaged .*: run letsam data multi30k --source FOLDER to get it anew"):
        load("multi30k", None, "cpu")
    assert main(["data", "multi30k", "--source", str(source)]) == 0
    assert "getting it anew" in capsys.readouterr().out
    assert len(load("multi30k", None, "cpu")[0]) == 4


def test_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"pip install 'letsam\[cli,language\]'"):
        bpe.learn(["a"])
