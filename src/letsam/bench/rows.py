"""From times to rows: quartiles, what a step costs beside the plain one, how much faster than the others it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
    "relative_to_two_passes",
    "speedups",
    "passes",
    "peak_mib",
    "reserved_mib",
    "loss",
    "error",
)


@dataclass(frozen=True)
class Timing:
    """The timed steps of a contender: milliseconds and passes of each, the mean over the whole, memory, last loss.

    Where contenders step in turn, step i of everybody belongs to round i.
    """

    times: list[float]
    passes: list[int]
    mean_ms: float
    loss: float
    peak_mib: float | None = None
    reserved_mib: float | None = None


Entry = tuple[Row, Timing]


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


def typical(values: list[float], passes: list[int]) -> float:
    """The median, where every step makes as many passes; else that of each kind of step, by how often it comes.

    A median over all would leave out the tenth step of a method that does its work every ten.
    """
    kinds: dict[int, list[float]] = defaultdict(list)
    for value, number in zip(values, passes, strict=True):
        kinds[number].append(value)
    return sum(median(kind) * len(kind) for kind in kinds.values()) / len(values)


def relate(rows: list[Row], timings: Sequence[Timing | str], paired: bool) -> None:
    """Fill in what relates a row to others; paired: ratios are taken within a round, whose steps had the same machine.

    `relative`: beside the plain row of the same mode. `relative_to_two_passes`: of those that make two passes at every
    step, what all but the passes adds. `speedups`: over each peer.
    """
    timed = [(row, timing) for row, timing in zip(rows, timings, strict=True) if isinstance(timing, Timing)]
    ratio = _paired if paired else _apart
    for entry in timed:
        row, timing = entry
        if (plain := _plain(row, timed)) is not None:
            row["relative"], row["relative_to"] = ratio(entry, plain), f"{plain[0]['name']}, {plain[0]['mode']}"
        if row["kind"] in ("letsam", "peer") and set(timing.passes) == {2}:
            bare = [x for x in timed if x[0]["kind"] == "two passes" and x[0]["mode"] == row["mode"]]
            row["relative_to_two_passes"] = ratio(entry, bare[0]) if bare else None
        if row["kind"] == "letsam":
            row["speedups"] = {x[0]["name"]: 1 / ratio(entry, x) for x in timed if x[0]["kind"] == "peer"}


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


def _apart(entry: Entry, other: Entry) -> float:
    """The ratio of two times that were measured one after the other."""
    return entry[0]["ms"] / other[0]["ms"]


def _paired(entry: Entry, other: Entry) -> float:
    """The usual ratio of two steps of one round."""
    ratios = [mine / theirs for mine, theirs in zip(entry[1].times, other[1].times, strict=True)]
    return typical(ratios, entry[1].passes)


def _plain(row: Row, timed: list[Entry]) -> Entry | None:
    """For ours our own erm in the same mode; else, in eager mode, the plain loop."""
    same = [x for x in timed if x[0]["mode"] == row["mode"]]
    own = [x for x in same if row["kind"] == x[0]["kind"] == "letsam" and x[0]["name"] == "erm"]
    loop = [x for x in same if x[0]["kind"] == "plain"]
    return next(iter([*own, *loop]), None)
