"""From times to rows: quartiles, what a step costs beside the plain one, how much faster than the others it is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any

Row = dict[str, Any]
KEYS = (
    "name",
    "kind",
    "mode",
    "ms",
    "median_ms",
    "q1_ms",
    "q3_ms",
    "mean_ms",
    "relative",
    "relative_to",
    "speedups",
    "passes",
    "peak_mib",
    "reserved_mib",
    "loss",
    "error",
)


@dataclass(frozen=True)
class Timing:
    """The timed steps of a contender: milliseconds and passes of each, the mean over the whole, memory, last loss."""

    times: list[float]
    passes: list[int]
    mean_ms: float
    loss: float
    peak_mib: float | None = None
    reserved_mib: float | None = None


def make_row(name: str, kind: str, mode: str, timing: Timing | str) -> Row:
    """The numbers of a contender, or its error; what relates it to others comes later."""
    row: Row = {**dict.fromkeys(KEYS), "name": name, "kind": kind, "mode": mode, "speedups": {}}
    if isinstance(timing, str):
        return {**row, "error": timing}
    times = timing.times
    q1, middle, q3 = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    return row | {
        "ms": typical(times, timing.passes),
        "median_ms": middle,
        "q1_ms": q1,
        "q3_ms": q3,
        "mean_ms": timing.mean_ms,
        "passes": fmean(timing.passes),
        "peak_mib": timing.peak_mib,
        "reserved_mib": timing.reserved_mib,
        "loss": timing.loss,
    }


def typical(times: list[float], passes: list[int]) -> float:
    """The median, where every step makes as many passes; else that of each kind of step, by how often it comes.

    A median over all would leave out the tenth step of a method that does its work every ten.
    """
    kinds: dict[int, list[float]] = defaultdict(list)
    for ms, number in zip(times, passes, strict=True):
        kinds[number].append(ms)
    return sum(median(kind) * len(kind) for kind in kinds.values()) / len(times)


def relate(rows: list[Row]) -> None:
    """Fill in `relative` (beside the plain row of the same mode) and `speedups` (over each peer)."""
    timed = [row for row in rows if row["error"] is None]
    peers = [row for row in timed if row["kind"] == "peer"]
    for row in timed:
        if (plain := _plain(row, timed)) is not None:
            row["relative"], row["relative_to"] = row["ms"] / plain["ms"], f"{plain['name']}, {plain['mode']}"
        if row["kind"] == "letsam":
            row["speedups"] = {peer["name"]: peer["ms"] / row["ms"] for peer in peers}


def milliseconds(value: float) -> str:
    """Three digits and more."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def disturbed(rows: list[Row]) -> list[str]:
    """A note, if the plain step, which is always the same work, took very different times."""
    plain = [row for row in rows if row["kind"] == "plain" and row["error"] is None]
    return [
        f"the plain step took {milliseconds(row['q1_ms'])} to {milliseconds(row['q3_ms'])} ms (quartiles): something "
        "else kept this machine busy, so time it again"
        for row in plain
        if row["q3_ms"] > 1.5 * row["q1_ms"]
    ]


def _plain(row: Row, timed: list[Row]) -> Row | None:
    """For ours our own erm in the same mode; else, in eager mode, the plain loop."""
    own = [x for x in timed if row["kind"] == x["kind"] == "letsam" and (x["name"], x["mode"]) == ("erm", row["mode"])]
    loop = [x for x in timed if x["kind"] == "plain" and x["mode"] == row["mode"]]
    return next(iter([*own, *loop]), None)
