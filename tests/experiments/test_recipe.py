"""Every recipe, every cell; what the paper published; bad recipes."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import letsam
from letsam.experiments.found import find
from letsam.experiments.recipe import Training, list_recipes, load_choices, load_recipe
from letsam.experiments.reproduce import cells
from letsam.experiments.training import AUTO, MATCHED

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
PAPER = {
    "cifar10": 44,
    "cifar100": 44,
    "imagenet": 11,
    "label-noise": 88,
    "initial-radius": 14,
    "upper-level": 6,
    "iwslt14": 5,
    "glue": 40,
}
OWN_SEEDS = {"radius-study", "radius-parts", "radius-constants"}
"""Some of their columns have fewer seeds than the others."""
OURS = {"label-noise": ("auto-sam",)}
RESULT = {"matthews": 0.6, "test_accuracy": 0.9, "pearson": 0.9}


def test_every_table_of_the_paper():
    assert set(PAPER) <= set(list_recipes(FOLDER))


@pytest.mark.parametrize("name", list_recipes(FOLDER))
def test_every_cell_is_a_run(name):
    table = load_recipe(FOLDER, name)
    runs = table.runs()
    assert len({training.identity for _, _, training in runs}) == len(runs)
    cells = [(row, column) for row in table.rows for column in table.columns if table.has(row, column)]
    assert len(runs) == sum(len(table.seeds_of(column)) for _, column in cells)
    assert name in OWN_SEEDS or len(runs) == len(table.rows) * len(table.columns) * len(table.seeds)
    if name in PAPER:
        rows = [row for row in table.rows if row not in OURS.get(name, ())]
        assert set(table.published) == {(row, column) for row in rows for column in table.columns}
        assert len(table.published) == PAPER[name]


def test_published_cells():
    assert load_recipe(FOLDER, "cifar10").published["lets-sam", "resnet18"] == (96.81, 0.02)
    assert load_recipe(FOLDER, "cifar100").published["lets-asam", "vit-s"] == (66.64, 0.43)
    assert load_recipe(FOLDER, "imagenet").published["gsam", "resnet50"] == (77.2, 0.0)
    assert load_recipe(FOLDER, "label-noise").published["esam", "resnet32-80"] == (10.09, 0.1)
    assert load_recipe(FOLDER, "initial-radius").published["1.5", "cifar100"] == (81.65, 0.06)
    assert load_recipe(FOLDER, "upper-level").published["gap", "cifar10"] == (96.75, 0.18)
    assert load_recipe(FOLDER, "iwslt14").published["lets-sam", "transformer"] == (34.85, 0.02)


def test_settings_of_the_appendix():
    table = load_recipe(FOLDER, "cifar10")
    plain = Training(method="sam", rho=0.05, epochs=200, batch=128, lr=0.1, momentum=0.9, weight_decay=5e-4)
    assert table.cell("sam", "resnet18", 0) == plain
    assert table.cell("sam", "pyramidnet110", 0).epochs == 300
    vit = table.cell("erm", "vit-s", 1)
    assert (vit.base, vit.lr, vit.batch, vit.epochs, vit.seed) == ("adam", 1e-4, 256, 1200, 1)


def test_a_record_of_an_older_version_is_still_found():
    """Whatever settings are added, the hash of those that were there stays."""
    assert load_recipe(FOLDER, "cifar10").cell("erm", "resnet18", 0).identity == "5f15aea3c51a"
    assert (FOLDER.parent / "results/reproduction/cifar10-resnet18-erm-seed0-5f15aea3c51a.json").exists()


def test_rows_of_some_columns_and_columns_of_more_seeds():
    table = load_recipe(FOLDER, "radius-study")
    with_asam = {f"{task}-{noise}" for task in ("digits", "fashion-mlp", "cifar10-10k") for noise in (0, 40)}
    assert {c for c in table.columns if table.has("auto-asam", c)} == with_asam
    assert (table.seeds_of("digits-0"), table.seeds_of("cifar10-short")) == ((0, 1, 2, 3, 4), (0, 1))
    assert not [c for r, c, training in table.runs() if r == "asam-1" and training.noise == 0.2]
    assert {training.seed for _, c, training in table.runs() if c == "cifar10-short"} == {0, 1}
    assert all(t.validation == "held-out" for _, _, t in table.runs() if t.method.startswith("auto-"))


def test_what_a_part_of_the_rule_does_is_seen_beside_the_runs_of_the_study():
    study, done = load_recipe(FOLDER, "radius-study"), set()
    for name in ("radius-parts", "radius-constants"):
        table = load_recipe(FOLDER, name)
        for column in table.columns:
            whole = table.cell("auto-sam", column, 0)
            assert whole.identity == study.cell("auto-sam", column, 0).identity
            done |= {table.cell(row, column, 0).identity for row in table.rows}
    assert len(done) == 7 * (1 + 10) + 4 * 11  # every row changes something


def test_settings_of_the_appendix_for_translation():
    run = load_recipe(FOLDER, "iwslt14").cell("lets-sam", "transformer", 0)
    assert (run.lr, run.beta2, run.weight_decay, run.label_smoothing, run.epochs) == (5e-4, 0.98, 1e-4, 0.1, 50)
    assert (run.options, run.validation) == ({"lr": 1e-5}, "training")
    assert load_recipe(FOLDER, "multi30k").cell("auto-sam", "transformer", 0).validation == "held-out"


def test_settings_of_the_appendix_for_glue():
    table = load_recipe(FOLDER, "glue")
    run = table.cell("lets-asam", "mnli", 0)
    assert (run.model, run.base, run.eps, run.clip, run.schedule) == (
        "microsoft/deberta-base",
        "adam",
        1e-6,
        1.0,
        "linear",
    )
    assert (run.options, run.validation) == ({"lr": 1e-4}, "training")
    for _, _, training in table.runs():
        assert training.batch in table.search["batch"]
        assert training.dropout in table.search["dropout"]
        assert training.warmup in table.search["warmup"]
        assert training.lr in table.search["lr"]
    assert table.published["lets-asam", "cola"] == (65.81, 0.44)
    assert table.published["sam", "rte"] == (56.44, 4.71)


def test_tables_share_runs():
    """LETS-SAM with the paper's objective is in two tables, and is run once."""
    one = load_recipe(FOLDER, "cifar10").cell("lets-sam", "resnet18", 0)
    assert one.identity == load_recipe(FOLDER, "upper-level").cell("squared-gap", "cifar10", 0).identity
    figure = load_recipe(FOLDER, "mrpc-radius").cell("0.05", "sam", 1)
    assert figure.identity == load_recipe(FOLDER, "glue").cell("sam", "mrpc", 1).identity


def test_a_record_of_an_earlier_rule_is_not_one_of_the_present(monkeypatch):
    matched = Training(method="sam", options={"radius": {"rule": "matched"}}, validation="held-out")
    auto, sam = Training(method="auto-asam"), Training(method="asam")
    before = auto.identity, matched.identity, sam.identity
    monkeypatch.setattr("letsam.experiments.training.AUTO", AUTO + 1)
    assert auto.identity != before[0]
    assert (matched.identity, sam.identity) == before[1:]
    monkeypatch.setattr("letsam.experiments.training.MATCHED", MATCHED + 1)
    assert matched.identity != before[1]
    assert sam.identity == before[2]


def test_identity_and_scale():
    training = Training()
    assert training.identity != Training(seed=1).identity
    short = training.scaled(0.1)
    assert short.epochs == 20
    assert short.identity != training.identity
    assert training.scaled(1.0) == training
    long = replace(training, epochs=50, average=10, warmup=100)
    assert (long.scaled(0.2).average, long.scaled(0.2).warmup, long.scaled(0.01).average) == (2, 20, 1)
    with pytest.raises(ValueError, match="average is 10, and there are 9 epochs"):
        replace(long, epochs=9)
    assert Training(warmup=2000).scaled(0.1).warmup == 200  # else the run might end in it
    with pytest.raises(ValueError, match="--scale is 0"):
        training.scaled(0)


def test_choices_are_told_with_reasons():
    for choice in load_choices(FOLDER):
        assert set(choice) == {"value", "paper", "ours", "reason"}
        assert all(choice.values())


GOOD = """
title = "t"
source = "s"
seeds = [0]
[columns]
a = { model = "resnet18" }
[rows]
sam = { method = "sam", rho = 0.1 }
"""


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"options": {"perturbation": 3}}, "perturbation of options is an object; combine axes in Python"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov is of base = 'sgd' with a momentum; leave it away"),
        ({"base": "adagrad", "beta2": 0.9}, "beta2 is a setting of adam and adamw, and the base is adagrad"),
        ({"options": {"radius": 3}}, "radius is 3; give a table, { rule = … }, or the number as rho"),
        ({"data": "cifar10", "model": "mlp"}, "mlp does not read cifar10: its images are those of fashion-mnist"),
        ({"images": 1001}, "images is 1001, and digits has 1000; give as many at most"),
        ({"seed": 10**23}, "seed is 100000000000000000000000; give a whole number from 0 to 4294967295"),
        ({"method": "auto-sam", "images": 3, "validation": "held-out"}, "images is 3, of which a tenth is held out"),
    ],
    ids=str,
)
def test_a_value_that_no_run_can_have_is_told_before_training(changes, line):
    with pytest.raises(ValueError, match=re.escape(line)):
        Training(**{"data": "digits", "model": "small-cnn", **changes})


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "rho = 0.1",
            "rhoo = 0.1",
            "bad/recipe.toml, row sam, column a: no setting is called 'rhoo'; did you mean 'rho'",
        ),
        ('"sam", rho', '"samm", rho', "bad/recipe.toml, row sam, column a: method is 'samm'; did you mean"),
        ("resnet18", "resnet19", "bad/recipe.toml, row sam, column a: model is 'resnet19'; did you mean 'resnet18'"),
        ("seeds = [0]", "", "bad/recipe.toml has no seeds"),
        ("seeds = [0]", "sedes = [0]", "bad/recipe.toml: no setting is called 'sedes'; did you mean 'seeds'"),
        ("[rows]", "[rows", "recipe.toml cannot be read: "),
        ("rho = 0.1", "epochs = 0", "epochs is 0; give a positive number"),
        ("rho = 0.1", "seed = 3", "no setting is called 'seed'"),
        ("rho = 0.1", 'only = ["b"]', "bad/recipe.toml: a column of sam is 'b'; choose from a"),
        (
            "rho = 0.1",
            "options = {radius = {rule = 'up'}}",
            "the rule of a radius is 'up'; choose from growth, random-",
        ),
        ("rho = 0.1", "options = {alpa = 0.1}", "bad/recipe.toml, row sam, column a: sam has no option 'alpa'; "),
        ("rho = 0.1", "options = 3", "bad/recipe.toml, sam: options is 3; give a table"),
        ("rho = 0.1", 'rho = "a"', "bad/recipe.toml, row sam, column a: rho is 'a'; give a number"),
        ("rho = 0.1", "rho = -0.1", "bad/recipe.toml, row sam, column a: rho is -0.1; give 0 or a positive number"),
        ("rho = 0.1", "rho = nan", "rho is nan; give a number"),
        ("rho = 0.1", "batch = 40.5", "batch is 40.5; give a whole number"),
        ("rho = 0.1", 'epochs = "4"', "epochs is '4'; give a whole number"),
        ("rho = 0.1", "epochs = 1.5", "epochs is 1.5; give a whole number"),
        ("rho = 0.1", "epochs = true", "epochs is True; give a whole number"),
        ("rho = 0.1", "average = -3", "average is -3; give 0 or a positive number"),
        ("rho = 0.1", "images = -5", "images is -5; give a positive number"),
        ("rho = 0.1", 'augment = "no"', "augment is 'no'; give true or false"),
        ("rho = 0.1", "cutout = -1", "cutout is -1; give 0 or a positive number"),
        (
            "rho = 0.1",
            "cutout = 16, augment = false",
            "cutout augments cifar10, .*, with augment = true; ",
        ),
        ("rho = 0.1", "momentum = -1", "momentum is -1; give a number from 0 to below 1"),
        ("rho = 0.1", "only = 3", "bad/recipe.toml, sam: only is 3; give a list"),
        ("seeds = [0]", "seeds = 3", "bad/recipe.toml: seeds is 3; give different whole numbers"),
        ("seeds = [0]", "seeds = [0, 0]", "bad/recipe.toml: seeds is [0, 0]; give different whole numbers"),
        ('model = "resnet18"', 'model = "resnet18", seeds = 3', "bad/recipe.toml, a: seeds is 3; give different"),
        ('a = { model = "resnet18" }', "a = 3", "bad/recipe.toml, columns: a is 3; give a table"),
        ('sam = { method = "sam", rho = 0.1 }', 'sam = "sam"', "bad/recipe.toml, rows: sam is 'sam'; give a table"),
        ('title = "t"', "title = 3", "bad/recipe.toml: title is 3; give a text"),
        ("rho = 0.1", "options = {radius = {rule = 'growth', rho = 0.1}}", "rule 'growth' cannot be made: 'by'"),
    ],
)
def test_a_bad_recipe_is_told_in_one_line(tmp_path, old, new, line):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(ValueError, match=line.replace("[", r"\[")) as error:
        load_recipe(tmp_path, "bad")
    assert "\n" not in str(error.value)


def test_a_cell_the_recipe_has_not(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.toml").write_text(GOOD)
    (tmp_path / "bad" / "paper.toml").write_text("[sam]\nb = [1.0, 0.1]\n")
    with pytest.raises(ValueError, match=r"bad/paper.toml has a cell sam, b that the recipe has not"):
        load_recipe(tmp_path, "bad")


@pytest.mark.parametrize("value", ["3", "[1.0]", '["a", 1]', "[1.0, 2.0, 3.0]"])
def test_a_published_cell_is_a_mean_and_a_deviation(tmp_path, value):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.toml").write_text(GOOD)
    (tmp_path / "bad" / "paper.toml").write_text(f"[sam]\na = {value}\n")
    with pytest.raises(ValueError, match=r"bad/paper.toml: the cell sam, a is .*; give \[mean, standard deviation\]"):
        load_recipe(tmp_path, "bad")
    (tmp_path / "bad" / "paper.toml").write_text("sam = 3\n")
    with pytest.raises(ValueError, match=r"bad/paper.toml: sam is 3; give a table"):
        load_recipe(tmp_path, "bad")


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="no recipe is called 'cifar-10'; did you mean 'cifar10'"):
        load_recipe(FOLDER, "cifar-10")
    with pytest.raises(ValueError, match="run this in a clone of letsam, or give --recipes"):
        load_recipe(tmp_path, "cifar10")


def test_every_method_of_the_paper_is_one_of_ours():
    assert set(load_recipe(FOLDER, "cifar10").rows) <= set(letsam.list_methods())


@pytest.mark.parametrize("name", ["glue-minilm", "glue-mpnet"])
def test_cells_of_another_encoder_are_labelled_and_not_compared(name):
    table, paper = load_recipe(FOLDER, name), load_recipe(FOLDER, "glue")
    assert "another encoder" in table.label
    assert not paper.label
    assert table.published == {cell: paper.published[cell] for cell in table.published}
    assert len(table.published) == 20
    done = {t.identity: {"training": {"data": t.data}, "result": RESULT} for _, _, t in (*table.runs(), *paper.runs())}
    ours = {(cell.row, cell.column): cell for cell in cells(table, done)}
    assert ours["sam", "mrpc"].paper == "90.36 ± 0.57"
    assert {cell.difference for cell in ours.values()} == {"–"}
    assert "–" not in {cell.difference for cell in cells(paper, done)}


def test_shortened_runs_with_a_warm_up_are_found():
    table = load_recipe(FOLDER, "multi30k")
    short = table.cell("sam", "transformer", 0).scaled(0.1)
    assert (short.epochs, short.warmup) == (6, 218)
    (cell,) = find(table, {short.identity: {"training": asdict(short)}})
    assert cell.label == "sam, 6 of 55 epochs"
