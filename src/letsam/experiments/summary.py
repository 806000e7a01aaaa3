"""From the metrics to the answer: the table, the winner, and whether the seeds can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from .config import Config
from .records import Record

T95 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
)
"""Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; 2.1 is near enough beyond."""

Records = dict[tuple[str, int], Record]
"""Of a method and a seed."""


def summarize(config: Config, records: Records, radii: dict[str, float | None]) -> dict[str, Any]:
    """The result of a comparison, for result.json; accuracies are shares, from the last epoch.

    `radii` are those that the methods start with.
    """
    methods = [_method(name, [records[name, seed] for seed in config.seeds], radii[name]) for name in config.methods]
    ranking = sorted(methods, key=lambda m: -m["test_accuracy"]["mean"])
    contests = [{"method": other["method"], **contest(ranking[0], other)} for other in ranking[1:]]
    ties = [c["method"] for c in contests if not c["clear"]]
    return {
        "data": config.data,
        "model": config.model,
        "noise": config.noise,
        "epochs": config.epochs,
        "seeds": list(config.seeds),
        "winner": None if ties else ranking[0]["method"],
        "first": ranking[0]["method"],
        "ties": ties,
        "verdict": _verdict(ranking, contests),
        "methods": methods,
        "contests": contests,
    }


def contest(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Difference in accuracy, seed by seed, with the half-width of its 95 % interval; clear if 0 lies outside."""
    pairs = zip(first["test_accuracy"]["values"], other["test_accuracy"]["values"], strict=True)
    differences = [a - b for a, b in pairs]
    mean, n = fmean(differences), len(differences)
    if n < 2:
        return {"difference": mean, "half_width": None, "clear": False}
    half_width = T95[min(n - 2, len(T95) - 1)] * stdev(differences) / math.sqrt(n)
    return {"difference": mean, "half_width": half_width, "clear": mean > half_width}


def percent(mean: float, std: float | None) -> str:
    """98.6 ± 0.2, in per cent."""
    return f"{100 * mean:.1f}" + ("" if std is None else f" ± {100 * std:.1f}")


def number(value: float | None) -> str:
    """A radius in three digits, a dash for none."""
    return "–" if not value else f"{value:.3g}"


def radius(method: dict[str, Any]) -> str:
    """0.02 → 1.6, or one number if it stays."""
    start, end = number(method["radius"]["start"]), number(method["radius"]["end"])
    return start if start == end else f"{start} → {end}"


def _method(method: str, runs: list[Record], radius: float | None) -> dict[str, Any]:
    values = [run["result"]["test_accuracy"] for run in runs]
    return {
        "method": method,
        "test_accuracy": {
            "mean": fmean(values),
            "std": stdev(values) if len(values) > 1 else None,
            "values": values,
        },
        "radius": {
            "start": radius,
            "end": average([run["result"]["rho"] for run in runs]),
        },
        "passes_per_step": fmean(row["passes"] for run in runs for row in run["rows"]),
        "seconds": fmean(sum(row["seconds"] for row in run["rows"]) for run in runs),
        "skipped_steps": sum(run["rows"][-1]["skipped"] for run in runs),
        "weights": [run["weights"] for run in runs],
    }


def average(radii: Sequence[float | None]) -> float | None:
    """The geometric mean over seeds, the natural one for a radius learned as ρ = exp(ν)."""
    positive = [r for r in radii if r]
    if len(set(radii)) == 1:
        return radii[0]
    return math.exp(fmean(math.log(r) for r in positive)) if len(positive) == len(radii) else None


def _verdict(ranking: list[dict[str, Any]], contests: list[dict[str, Any]]) -> str:
    first = ranking[0]
    score = f"{percent(first['test_accuracy']['mean'], first['test_accuracy']['std'])} %"
    seeds = len(first["test_accuracy"]["values"])
    if not contests:
        return f"{first['method']} reaches {score} test accuracy; there is nothing to compare it with."
    if seeds < 2:
        return f"{first['method']} is first with {score}, but one seed cannot tell luck from skill: take 3 or more."
    ties = [c for c in contests if not c["clear"]]
    if ties:
        return (
            f"No clear winner: {first['method']} is first with {score}, but {_listed([c['method'] for c in ties])} "
            f"{'is' if len(ties) == 1 else 'are'} within the noise of {seeds} seeds ({ties[0]['method']} is behind by "
            f"{100 * ties[0]['difference']:.1f} ± {100 * ties[0]['half_width']:.1f} points, 95 % interval)."
        )
    second = contests[0]
    return (
        f"{first['method']} wins with {score}: {100 * second['difference']:.1f} ± {100 * second['half_width']:.1f} "
        f"points over {second['method']}, the next best (95 % interval over {seeds} seeds)."
    )


def _listed(names: list[str]) -> str:
    if len(names) > 5:
        names = [*names[:4], f"{len(names) - 4} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
