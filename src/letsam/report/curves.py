"""The four curves of a comparison as plotly traces: mean over the seeds, band from the lowest to the highest."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from ..experiments.config import Config
from ..experiments.record import Row
from ..experiments.summary import Records, average

GREY = "#8b93a1"
PALETTE = (
    "#3b82f6",
    "#10b981",
    "#f59e0b",
    "#a855f7",
    "#f43f5e",
    "#06b6d4",
    "#84cc16",
    "#ec4899",
    "#6366f1",
    "#b45309",
)
DASHES = ("solid", "dash", "dot", "dashdot")

CURVES = (
    ("test_accuracy", "Test accuracy", "%", "Share of the test images classified right."),
    (
        "train_loss",
        "Training loss",
        "log",
        "Mean of the epoch, on the labels trained with; logarithmic.",
    ),
    ("gap", "Generalization gap", "", "Test loss − mean training loss of the epoch; the test labels have no noise."),
    ("rho", "Radius ρ", "log", "How far the perturbation reaches; logarithmic."),
)


def colors(methods: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Colour and dash of each method; plain training is grey."""
    others = [method for method in methods if method != "erm"]
    styles = {
        method: (PALETTE[i % len(PALETTE)], DASHES[i // len(PALETTE) % len(DASHES)]) for i, method in enumerate(others)
    }
    return {"erm": (GREY, "solid"), **styles}


def plots(config: Config, records: Records) -> list[dict[str, Any]]:
    """One plot a curve: id, title, caption, traces and the y axis."""
    found = []
    for key, title, unit, caption in CURVES:
        scale = 100 if unit == "%" else 1
        traces = [trace for method in config.methods for trace in _traces(config, records, method, key, scale)]
        if traces:
            axis: dict[str, Any] = {
                "type": "log" if unit == "log" else "linear",
                "ticksuffix": " %" if unit == "%" else "",
            }
            if unit == "log":
                axis |= _log_ticks([y for trace in traces for y in trace["y"]])
            if key == "test_accuracy":
                axis["range"] = _accuracy_range(config, records)
            found.append({"id": key, "title": title, "caption": caption, "traces": traces, "yaxis": axis})
    return found


def _traces(config: Config, records: Records, method: str, key: str, scale: float) -> list[dict[str, Any]]:
    color, dash = colors(config.methods)[method]
    points = []
    for rows in zip(*(records[method, seed]["rows"] for seed in config.seeds), strict=True):
        values = [value for row in rows if (value := _value(row, key)) is not None]
        if len(values) < len(rows) or (key in ("rho", "train_loss") and min(values) <= 0):
            continue
        middle = average(values) if key == "rho" else fmean(values)
        points.append((rows[0]["epoch"], scale * min(values), scale * float(middle or 0), scale * max(values)))
    if not points:
        return []
    x, low, mean, high = (list(column) for column in zip(*points, strict=True))
    common = {"type": "scatter", "mode": "lines", "name": method, "legendgroup": method, "showlegend": False}
    band = {
        **common,
        "x": x + x[::-1],
        "y": _rounded(high + low[::-1]),
        "fill": "toself",
        "fillcolor": _transparent(color),
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    width = 3 if method.startswith("auto-") else 2
    line = {**common, "x": x, "y": _rounded(mean), "line": {"color": color, "width": width, "dash": dash}}
    return [band, line] if len(config.seeds) > 1 else [line]


def _value(row: Row, key: str) -> float | None:
    """None where an epoch was not tested, or a loss was not finite."""
    if key != "gap":
        value: float | None = row[key]
        return value
    losses = row["test_loss"], row["train_loss"]
    return None if None in losses else losses[0] - losses[1]


def _accuracy_range(config: Config, records: Records) -> list[float]:
    """From the lowest accuracy after the first fifth of training: the start would squeeze the rest together."""
    rows = [row for record in records.values() for row in record["rows"] if row["test_accuracy"] is not None]
    late = [row["test_accuracy"] for row in rows if 5 * row["epoch"] >= rows[-1]["epoch"]]
    low, high = 100 * min(late), 100 * max(late)
    margin = max(0.5, 0.06 * (high - low))
    return [max(0.0, low - margin), min(100.5, high + margin)]


def _log_ticks(values: list[float]) -> dict[str, Any]:
    """As many steps in a decade as there is room for; plain numbers, not 10⁻²."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    ratio = max(values) / min(values)
    steps = (1, 2, 5) if ratio < 50 else (1, 3) if ratio < 3000 else (1,)
    every = math.ceil((last - first) / 8) or 1
    ticks = [step * 10.0**decade for decade in range(first, last + 1, every) for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _transparent(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"
