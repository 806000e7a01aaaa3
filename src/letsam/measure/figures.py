"""Figures of what was measured: landscapes side by side, and curves of several methods. Needs matplotlib.

Every function writes a PNG and an SVG beside each other and returns their paths. Numbers that are None or not finite
are gaps. `Seeds` is what one method gave: one series a seed; the line is their mean, the band goes from the smallest
to the largest.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..files import write
from .landscape import Surface

Series = Sequence[float | None]
Seeds = Sequence[Series]
Places = Mapping[str, Sequence[int]]

# Okabe and Ito (2008): told apart by the colour-blind too; solid lines first, then dashed ones.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
GAP = "#d9d9d9"
CROWDED = 7
"""With more lines than colours, the legend has no room among them."""
LEVELS = 25
WIDE = 20.0
"""From this ratio of the largest to the smallest loss on, a linear scale would show one colour in the middle."""


def landscapes(
    surfaces: Mapping[str, Surface],
    path: str | Path,
    *,
    loss: str | None = None,
    log: bool | None = None,
    ceiling: float | None = None,
) -> list[Path]:
    """Contours side by side, on the same axes and with the same colours; grey where the loss is not finite.

    loss: which of the surfaces' losses, the first by default. log: a logarithmic scale of colours, by default where
    the largest loss is twenty times the smallest. ceiling: losses above it look the same.
    """
    grids = [_values(surface, loss, axes=2) for surface in surfaces.values()]
    first = next(iter(surfaces.values()))
    if any(surface.axes != first.axes for surface in surfaces.values()):
        raise ValueError("the surfaces have different axes; measure them on the same ones to compare them")
    everything = [x for grid in grids for row in grid for x in row]
    levels, log = _levels(everything, log, ceiling)
    extend = "max" if any(x > levels[-1] for x in everything) else "neither"
    figure = _figure(3.4 * len(surfaces) + 1.2, 3.7)
    figure.get_layout_engine().set(wspace=0.06)  # the outer numbers of two panels would touch
    panels = figure.subplots(1, len(surfaces), sharex=True, sharey=True, squeeze=False)[0]
    from matplotlib.colors import LogNorm, Normalize

    norm = (LogNorm if log else Normalize)(levels[0], levels[-1])
    for panel, (name, grid) in zip(panels, zip(surfaces, grids, strict=True), strict=True):
        filled = panel.contourf(*first.axes, grid, levels, norm=norm, cmap="viridis", extend=extend)
        panel.contour(*first.axes, grid, levels[:: LEVELS // 8], colors="white", linewidths=0.5)
        panel.plot(0, 0, "+", color="white", markersize=9)
        panel.set(title=name, xlabel="along direction 1", facecolor=GAP, aspect="equal")
    panels[0].set_ylabel("along direction 2")
    figure.colorbar(filled, ax=list(panels), label=loss or next(iter(first.values)), format="%.3g")
    return _save(figure, path)


def profiles(
    surfaces: Mapping[str, Surface], path: str | Path, *, loss: str | None = None, log: bool | None = None
) -> list[Path]:
    """Landscapes along one direction, a line a method. loss and log as in `landscapes`."""
    lines = {name: _values(surface, loss, axes=1)[0] for name, surface in surfaces.items()}
    scale = _levels([x for line in lines.values() for x in line], log, None)[1]
    figure = _figure()
    axes = figure.add_subplot()
    for i, (name, line) in enumerate(lines.items()):
        axes.plot(surfaces[name].axes[0], line, _dashes(i), color=_colour(i), label=name)
    label = loss or next(iter(next(iter(surfaces.values())).values))
    return _finish(figure, axes, path, "along the direction", label, scale)


def generalisation_gap(
    train: Mapping[str, Seeds],
    test: Mapping[str, Seeds],
    path: str | Path,
    *,
    xlabel: str = "epoch",
    places: Places | None = None,
) -> list[Path]:
    """L_test − L_train by epoch, for each method and seed; the scale is linear, as a gap may be negative.

    places: the epochs of each method at which there are test losses, if that is not every one.
    """
    gaps = {
        name: [
            [_number(b) - _number(a) for a, b in zip(x, y, strict=True)]
            for x, y in zip(train[name], test[name], strict=True)
        ]
        for name in train
    }
    return curves(gaps, path, xlabel=xlabel, ylabel="test loss − training loss", zero=True, places=places)


def convergence(losses: Mapping[str, Seeds], path: str | Path, *, xlabel: str = "epoch") -> list[Path]:
    """The training loss by epoch, logarithmic."""
    return curves(losses, path, xlabel=xlabel, ylabel="training loss", log=True)


def radius_paths(radii: Mapping[str, Seeds], path: str | Path, *, xlabel: str = "epoch") -> list[Path]:
    """The radius by epoch, logarithmic: it is learned as ρ = exp(ν)."""
    return curves(radii, path, xlabel=xlabel, ylabel="radius ρ", log=True)


def curves(
    methods: Mapping[str, Seeds],
    path: str | Path,
    *,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    zero: bool = False,
    places: Places | None = None,
) -> list[Path]:
    """A line and a band for every method, against its places or 1, 2, 3, …; a seed without a number makes a gap."""
    figure = _figure()
    axes = figure.add_subplot()
    if zero:
        axes.axhline(0, color="#888888", linewidth=0.8)
    for i, (name, seeds) in enumerate(methods.items()):
        columns = [[_number(x) for x in column] for column in zip_longest(*seeds)]
        _line(axes, i, name, places[name] if places else range(1, len(columns) + 1), columns)
    if places is None or all(isinstance(x, int) for where in places.values() for x in where):
        axes.xaxis.get_major_locator().set_params(integer=True)
    return _finish(figure, axes, path, xlabel, ylabel, log)


def sensitivity(
    methods: Mapping[str, Mapping[float, Sequence[float]]], level: Mapping[str, Sequence[float]], path: str | Path
) -> list[Path]:
    """Accuracy against the radius, logarithmic: of each method its radii, and what each seed gave there.

    level: methods without a radius to set, which are straight lines, with what each seed gave.
    """
    figure = _figure()
    axes = figure.add_subplot()
    for i, (name, points) in enumerate(methods.items()):
        radii = sorted(points)
        _line(axes, i, name, radii, [[_number(x) for x in points[rho]] for rho in radii], marker="o")
    for i, (name, seeds) in enumerate(level.items(), start=len(methods)):
        axes.axhline(sum(seeds) / len(seeds), color=_colour(i), linestyle=_dashes(i), label=name)
        axes.axhspan(min(seeds), max(seeds), color=_colour(i), alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    return _finish(figure, axes, path, "radius ρ, the first one if it is learned", "test accuracy, %", log=False)


def bars(groups: Mapping[str, Mapping[str, float]], path: str | Path) -> list[Path]:
    """For every group a bar of each of its numbers, the same ones in all of them."""
    figure = _figure()
    axes = figure.add_subplot()
    kinds = list(dict.fromkeys(kind for numbers in groups.values() for kind in numbers))
    width = 0.8 / len(kinds)
    for i, kind in enumerate(kinds):
        places = [group + (i - (len(kinds) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(places, [_number(x.get(kind)) for x in groups.values()], width, color=_colour(i), label=kind)
    axes.set_xticks(range(len(groups)), list(groups))
    return _finish(figure, axes, path, "", "", log=False, outside=True)


# ------------------------------------------------------------------------------------------------------- helpers


def _line(axes: Any, i: int, name: str, x: Sequence[float], columns: list[list[float]], marker: str = "") -> None:
    """The mean of every column, and a band from its smallest to its largest number."""
    axes.plot(x, [sum(c) / len(c) for c in columns], _dashes(i), color=_colour(i), label=name, marker=marker)
    if any(len(c) > 1 for c in columns):
        axes.fill_between(x, list(map(min, columns)), list(map(max, columns)), color=_colour(i), alpha=0.15)


def _figure(width: float = 6.4, height: float = 4.0) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'letsam[cli]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _finish(
    figure: Any, axes: Any, path: str | Path, xlabel: str, ylabel: str, log: bool, outside: bool = False
) -> list[Path]:
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        axes.set_yscale("log", nonpositive="mask")
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if outside or len(axes.get_legend_handles_labels()[1]) > CROWDED:
        figure.legend(frameon=False, loc="outside right upper", fontsize="small")
    else:
        axes.legend(frameon=False)
    return _save(figure, path)


def _save(figure: Any, path: str | Path) -> list[Path]:
    """The PNG and the SVG; the same numbers give the same bytes."""
    from matplotlib import rc_context

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context({"svg.hashsalt": "letsam"}):
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            image = io.BytesIO()
            figure.savefig(image, format=kind, dpi=200, metadata=metadata)
            written.append(path.with_name(f"{path.name.removesuffix('.png').removesuffix('.svg')}.{kind}"))
            write(written[-1], image.getvalue())
    return written


def _values(surface: Surface, loss: str | None, axes: int) -> list[list[float]]:
    """The numbers of one loss, NaN where there is none."""
    if len(surface.axes) != axes:
        raise ValueError(f"a surface has {len(surface.axes)} axes; landscapes() draws two, profiles() one")
    name = loss or next(iter(surface.values))
    if name not in surface.values:
        raise ValueError(f"a surface has no loss {name!r}; choose from {', '.join(surface.values)}")
    return [[_number(x) for x in row] for row in surface.values[name]]


def _number(x: float | None) -> float:
    return x if x is not None and math.isfinite(x) else math.nan


def _levels(values: list[float], log: bool | None, ceiling: float | None) -> tuple[list[float], bool]:
    """The levels that all panels share, and whether they are logarithmic."""
    finite = [x for x in values if math.isfinite(x)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    high = high if ceiling is None else min(high, ceiling)
    if high <= low:
        high = low + max(abs(low), 1.0) * 1e-3
    log = low > 0 and (high / low >= WIDE if log is None else log)
    steps = [i / LEVELS for i in range(LEVELS)]
    return [*(low * (high / low) ** t if log else low + (high - low) * t for t in steps), high], log


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _dashes(i: int) -> str:
    return DASHES[i // len(COLOURS) % len(DASHES)]
