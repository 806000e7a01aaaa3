"""The verdict: who won, and whether the seeds can tell."""

from typing import Any

import pytest

from letsam.experiments.config import Config
from letsam.experiments.summary import radius, summarize


def result(**accuracies: list[float]) -> dict[str, Any]:
    seeds = tuple(range(len(next(iter(accuracies.values())))))
    config = Config(methods=tuple(accuracies), seeds=seeds, epochs=1)
    row = {"passes": 2.0, "seconds": 1.5, "skipped": 0}
    records = {
        (method, seed): {"rows": [row, row], "result": {"test_accuracy": value, "rho": rho}, "weights": "0"}
        for method, values in accuracies.items()
        for seed, (value, rho) in enumerate(zip(values, (0.5, 2.0, 1.0, 1.0), strict=False))
    }
    return summarize(config, records, dict.fromkeys(accuracies, 0.02))


def test_a_clear_winner() -> None:
    found = result(erm=[0.70, 0.72, 0.71], sam=[0.90, 0.93, 0.91])
    assert found["winner"] == "sam"
    assert found["ties"] == []
    assert found["verdict"].startswith("sam wins with 91.3 ± 1.5 %: 20.3 ± ")


def test_within_the_noise() -> None:
    found = result(erm=[0.90, 0.92, 0.91], sam=[0.93, 0.91, 0.915], asam=[0.5, 0.5, 0.5])
    assert found["winner"] is None
    assert found["first"] == "sam"
    assert found["ties"] == ["erm"]
    assert "No clear winner" in found["verdict"]
    assert "but erm is within the noise of 3 seeds (erm is behind by 0.8 ± " in found["verdict"]


def test_the_interval_told_is_that_of_a_tie() -> None:
    found = result(sam=[0.94, 0.94], asam=[0.86, 0.87], erm=[0.60, 0.85])
    assert found["ties"] == ["erm"]
    assert "erm is behind by 21.5 ± 158.9 points" in found["verdict"]


def test_many_ties_are_counted() -> None:
    found = result(**{f"sam{i}": [0.9, 0.9] for i in range(9)})
    assert "and 4 others are within" in found["verdict"]


def test_the_interval_is_students() -> None:
    found = result(erm=[0.5, 0.5, 0.5, 0.5], sam=[0.51, 0.52, 0.53, 0.54])
    contest = found["contests"][0]
    assert contest["difference"] == pytest.approx(0.025)
    assert contest["half_width"] == pytest.approx(3.182 * 0.012910 / 2, rel=1e-3)


def test_one_seed_or_one_method_claims_nothing() -> None:
    assert result(erm=[0.7], sam=[0.9])["winner"] is None
    assert "one seed cannot tell" in result(erm=[0.7], sam=[0.9])["verdict"]
    assert "nothing to compare" in result(erm=[0.7, 0.8])["verdict"]


def test_equal_methods_tie() -> None:
    found = result(erm=[0.9, 0.9], sam=[0.9, 0.9])
    assert found["winner"] is None
    assert found["ties"] == ["sam"]


def test_radius_is_a_geometric_mean() -> None:
    method = result(sam=[0.9, 0.9])["methods"][0]
    assert method["radius"] == {"start": pytest.approx(0.02), "end": pytest.approx(1.0)}
    assert radius(method) == "0.02 → 1"
    assert method["seconds"] == 3.0
