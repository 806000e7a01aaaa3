"""Settings and method specs: what is typed, what is stored, what is refused."""

import json
from dataclasses import replace

import pytest

from letsam.experiments.compare import check_methods
from letsam.experiments.config import Config, Job, Spec
from letsam.experiments.train import training
from letsam.experiments.training import Training


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("sam", "sam", {}),
        ("sam:rho=0.1", "sam", {"rho": 0.1}),
        ("looksam:k=3,alpha=0.5", "looksam", {"k": 3, "alpha": 0.5}),
        ("lets-sam:betas=(0.9, 0.99),lr=1e-3", "lets-sam", {"betas": (0.9, 0.99), "lr": 1e-3}),
        ("asam:filterwise=false", "asam", {"filterwise": False}),
        ("auto-sam:estimator=exact", "auto-sam", {"estimator": "exact"}),
    ],
)
def test_specs(text: str, name: str, options: dict[str, object]) -> None:
    spec = Spec.parse(text)
    assert spec == Spec(name, options)
    assert Spec.parse(str(spec)) == spec


@pytest.mark.parametrize("text", ["sam:rho", "sam:rho=", "sam:=1", "sam:rho=1,rho=2", "sam:policy=Always"])
def test_broken_specs(text: str) -> None:
    with pytest.raises(ValueError, match="method") as caught:
        Spec.parse(text)
    assert "\n" not in str(caught.value)


def test_resolved_settings_survive_json() -> None:
    config = Config(seeds=(1,), base="adamw").resolved()
    assert (config.seeds, config.lr, config.weight_decay) == ((0,), 2e-3, 0.05)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_seeds_are_a_count_or_a_list() -> None:
    assert Config().resolved().seeds == (0, 1, 2)
    assert Config(seeds=(7, 3)).resolved().seeds == (7, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ()},
        {"methods": ("sam:rho=0.1", "sam:rho=0.10")},
        {"seeds": ()},
        {"seeds": (0,)},
        {"seeds": (1, 1)},
        {"seeds": (-1, 2)},
        {"epochs": 0},
        {"epochs": -3},
        {"noise": 1.0},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"base": "lion"},
        {"batch_size": 1},
        {"batch_size": 901},
        {"lr": 0.0},
        {"lr": float("inf")},
        {"weight_decay": -1.0},
        {"data": "mnist"},
        {"images": 9},
        {"images": 1001},
    ],
)
def test_bad_values_are_one_line(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        Config(**wrong).resolved()  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["sma", "sam:rhoo=1", "sam:rho=-1", "sam:rho=nan", "looksam:k=0", "erm:rho=1"])
def test_wrong_methods_are_found_before_anything_runs(method: str) -> None:
    with pytest.raises(ValueError, match="method") as caught:
        check_methods(Config(methods=(method,)).resolved())
    assert "\n" not in str(caught.value)


def test_every_set_has_settings_of_its_own() -> None:
    digits, images = Config().resolved(), Config(data="cifar10", images=5000).resolved()
    assert (digits.model, digits.epochs, digits.batch_size, digits.lr) == ("small-cnn", 80, 50, 0.03)
    assert (images.model, images.epochs, images.batch_size, images.lr) == ("resnet18", 60, 128, 0.1)
    given = Config(data="cifar100", model="resnet32", epochs=3, batch_size=9, base="adamw", lr=0.5).resolved()
    assert (given.model, given.epochs, given.batch_size, given.lr) == ("resnet32", 3, 9, 0.5)


def test_a_job_is_a_run_of_the_common_loop() -> None:
    config = Config(methods=("looksam:k=3,rho=0.2", "auto-asam"), noise=0.4, epochs=7).resolved()
    common = Training(
        data="digits", model="small-cnn", seed=2, epochs=7, batch=50, lr=0.03, noise=0.4, augment=False,
        precision="float32",
    )  # fmt: skip
    plain, auto = (training(Job(config, method, 2)) for method in config.methods)
    assert plain == replace(common, method="looksam", rho=0.2, options={"k": 3})
    assert auto == replace(common, method="auto-asam", validation="held-out", back=0.25)
    assert training(Job(Config(data="cifar10", methods=("sam",)).resolved(), "sam", 0)) == Training(
        method="sam", epochs=60
    )
