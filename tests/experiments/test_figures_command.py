"""Recipes of figures share the runs of tables; letsam figures draws what there is and writes one page."""

import json
import re
from pathlib import Path

import pytest
from measured_runs import FIGURE, TABLE, write_recipes

from letsam.cli import main
from letsam.experiments import tables
from letsam.experiments.drawing import drawings
from letsam.experiments.recipe import load_recipe
from letsam.experiments.records import records
from letsam.experiments.reproduce import cells
from letsam.report.reproduction import Section, write_page

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
FIGURES = ("convergence", "generalization-gap", "loss-landscape")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """erm and lets-sam at full length, sam at half of it; all measured, all drawn."""
    folder = tmp_path_factory.mktemp("drawn")
    write_recipes(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["reproduce", "small", "--rows", "erm", "lets-sam"]) == 0
        assert main(["reproduce", "small", "--rows", "sam", "--scale", "0.5", "--seeds", "0"]) == 0
        for scale in ("1", "0.5"):
            assert main(["measure", "loss-landscape", "--scale", scale, "--points", "5", "--images", "60"]) == 0
        assert main(["figures", "--out", "images", "--page", "page.html"]) == 0
    return folder


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_the_runs_of_the_tables(name):
    figure = load_recipe(FOLDER, name)
    whole = {t.identity for data in ("cifar10", "cifar100") for _, _, t in load_recipe(FOLDER, data).runs()}
    assert figure.kind == name
    assert {t.identity for _, _, t in figure.runs()} <= whole
    assert set(figure.rows) == {"erm", "sam", "lets-sam", "asam", "lets-asam"}
    assert figure.cell("sam", "cifar100-resnet18", 0) == load_recipe(FOLDER, "cifar100").cell("sam", "resnet18", 0)
    assert (len(figure.columns), len(figure.seeds)) == ((2, 1) if name == "loss-landscape" else (6, 3))


def test_its_plan_is_that_of_a_table(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "loss-landscape", "--plan", "--recipes", str(FOLDER)]) == 0
    assert "10 runs" in capsys.readouterr().out


def test_every_figure_is_a_png_and_an_svg(place):
    names = ["convergence-small-plain", "generalization-gap-small-plain", "small-plain-radius"]
    names += ["loss-landscape-small-plain-profile", "loss-landscape-small-plain-surface"]
    files = {path.name for path in (place / "images").iterdir()}
    assert files == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}


def test_the_same_records_give_the_same_figures(place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    assert main(["figures", "--out", str(tmp_path / "again"), "--page", str(tmp_path / "page.html")]) == 0
    for path in (place / "images").glob("*.svg"):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_what_is_missing_is_said(place, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(place)
    assert main(["figures", "convergence", "--out", str(tmp_path), "--page", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr().out
    assert "convergence: 1 of 3 full-length runs are missing." in out
    assert "some runs are shortened" in out
    assert "generalization-gap" not in out


def test_shortened_runs_are_labelled(place):
    results = place / "results"
    _, erm, sam, _ = tables.reproduction(place / "recipes", results / "reproduction", "small")
    assert re.fullmatch(r"\d+\.\d\d \(1\), 2 of 4 epochs; paper 90\.00 ± 0\.50", sam[1])
    assert erm[1].startswith("**")
    flat = tables.flatness(load_recipe(place / "recipes", "loss-landscape"), results / "measures")
    assert [row[0] for row in flat[1:]] == [
        "small-plain, erm",
        "small-plain, sam, 2 of 4 epochs",
        "small-plain, lets-sam",
    ]


def test_nothing_to_draw_is_no_error(tmp_path, monkeypatch, capsys):
    write_recipes(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["figures"]) == 0
    assert "convergence: 3 of 3 full-length runs are missing." in capsys.readouterr().out
    assert (tmp_path / "runs" / "reproduction" / "report.html").exists()
    assert not (tmp_path / "docs").exists()


def test_the_gap_is_a_line_through_the_tested_epochs(place, monkeypatch, tmp_path):
    seen = {}
    from letsam.measure import figures

    monkeypatch.setattr(figures, "curves", lambda methods, path, **rest: seen.update(rest, methods=methods) or [])
    records = {path: json.loads(path.read_text()) for path in (place / "results" / "reproduction").glob("*.json")}
    (tmp_path / "reproduction").mkdir()
    for path, record in records.items():
        for row in record["rows"][::2]:
            row["test_loss"] = row["test_accuracy"] = None
        (tmp_path / "reproduction" / path.name).write_text(json.dumps(record))
    (drawing,) = drawings(load_recipe(place / "recipes", "generalization-gap"), tmp_path)
    drawing.draw(tmp_path / "gap")
    assert seen["places"] == {"erm": [2, 4], "sam, 2 of 4 epochs": [2], "lets-sam": [2, 4]}
    assert all(x == x for seeds in seen["methods"].values() for series in seeds for x in series)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (('"convergence"', '"convergance"'), "figure is 'convergance'; did you mean 'convergence'?"),
        (('"sam"', '"smma"'), "convergence/recipe.toml: small has no 'smma' in its rows"),
        (('["plain"]', '["big"]'), "convergence/recipe.toml: small has no 'big' in its columns"),
        (("seeds = [0]", "seeds = [5]"), "convergence/recipe.toml: small has no 5 in its seeds"),
        (('["small"]', '["smal"]'), "no recipe is called 'smal'"),
        (("title", "titel"), "no setting is called 'titel'; did you mean 'title'?"),
        (('rows = ["erm", "sam", "lets-sam"]', ""), "convergence/recipe.toml has no rows"),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path, monkeypatch, capsys, change, line):
    write_recipes(tmp_path)
    text = FIGURE.format(kind="convergence")
    assert change[0] in text
    (tmp_path / "recipes" / "convergence" / "recipe.toml").write_text(text.replace(*change))
    monkeypatch.chdir(tmp_path)
    assert main(["figures", "convergence"]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_other_bad_input_is_one_line(place, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(place)
    assert main(["figures", "convergense"]) == 2
    assert "did you mean 'convergence'?" in capsys.readouterr().err
    assert main(["figures", "--recipes", "nowhere"]) == 2
    assert "no recipes in nowhere" in capsys.readouterr().err
    path = next((place / "results" / "measures").glob("*lets*"))
    (tmp_path / "measures").mkdir()
    for other in path.parent.iterdir():
        (tmp_path / "measures" / other.name).write_text(other.read_text())
    record = json.loads(path.read_text())
    record["settings"]["images"] += 1
    (tmp_path / "measures" / path.name).write_text(json.dumps(record))
    assert main(["figures", "loss-landscape", "--results", str(tmp_path), "--out", str(tmp_path / "images")]) == 2
    assert "measures of one figure have different settings" in capsys.readouterr().err


def test_the_page_has_tables_and_figures_and_needs_no_network(place):
    text = (place / "page.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert not re.search(r"url\(|@import|(src|href)\s*=\s*[\"'](?!data:|#)", text)
    assert text.count("data:image/svg+xml;base64,") == 5
    for part in ("90.00 ± 0.50", "2 of 4 epochs", "m-sharpness", "1 of 3 measures are missing.", "hours on cpu"):
        assert part in text


def test_a_table_of_radii_is_a_figure_with_a_line_a_column(tmp_path, monkeypatch):
    rows = '"0.02" = { rho = 0.02 }\n"0.1" = { rho = 0.1 }\n'
    columns = '[columns]\nsam = { method = "sam" }\nasam = { method = "asam" }\n'
    (tmp_path / "recipes" / "radii").mkdir(parents=True)
    settings = TABLE.split("[columns]")[0].replace("epochs = 4", "epochs = 1")
    (tmp_path / "recipes" / "radii" / "recipe.toml").write_text(f"{settings}{columns}[rows]\n{rows}")
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "radii", "--rows", "0.1"]) == 0
    assert not drawings(load_recipe(tmp_path / "recipes", "radii"), tmp_path / "results")  # a point is no line
    assert main(["reproduce", "radii"]) == 0
    assert main(["figures", "--out", "images", "--page", "page.html"]) == 0
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"radii-accuracy.png", "radii-accuracy.svg"}
    table, results = load_recipe(tmp_path / "recipes", "radii"), tmp_path / "results"
    (drawing,) = drawings(table, results)
    lines, level = drawing.draw.args
    done = cells(table, records(results / "reproduction"))
    assert lines == {c: {float(x.row): list(x.ours) for x in done if x.column == c} for c in ("sam", "asam")}
    assert not level


def test_with_wrong_labels_the_accuracy_of_every_tested_epoch_is_drawn(tmp_path, monkeypatch):
    """The last epoch is not the best one there, and a table shows the last one alone."""
    columns = "[columns]\nright = {}\nwrong = { noise = 0.4 }\n"
    (tmp_path / "recipes" / "noisy").mkdir(parents=True)
    text = f'{TABLE.split("[columns]")[0]}{columns}[rows]\nerm = {{ method = "erm" }}\n'
    (tmp_path / "recipes" / "noisy" / "recipe.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "noisy", "--seeds", "0"]) == 0
    (drawing,) = drawings(load_recipe(tmp_path / "recipes", "noisy"), tmp_path / "results")
    assert drawing.name == "noisy-wrong-accuracy"
    seen = {}
    from letsam.measure import figures

    monkeypatch.setattr(figures, "curves", lambda methods, path, **rest: seen.update(rest, methods=methods) or [])
    drawing.draw(tmp_path / "accuracy")
    (record,) = (r for r in records(tmp_path / "results" / "reproduction").values() if r["training"]["noise"])
    assert seen["methods"] == {"erm": [[100 * row["test_accuracy"] for row in record["rows"]]]}
    assert seen["places"] == {"erm": [1, 2, 3, 4]}


@pytest.mark.parametrize(("name", "columns"), [("glue", 8), ("glue-minilm", 0)])
def test_there_is_no_difference_to_another_encoder(name, columns, tmp_path):
    write_page(tmp_path / "page.html", [Section(load_recipe(FOLDER, name), [], "")], tmp_path, tmp_path)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count(">difference<") == columns
