"""The figures are images, they show what they say, and the same numbers give the same bytes."""

import math
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import pytest

from letsam.measure import Surface, figures

XS, YS = [-1.0, -0.5, 0.0, 0.5, 1.0], [-1.0, 0.0, 1.0]


def bowl(steep, nulls=()):
    values = [[steep * (x * x + y * y) + 0.01 for x in XS] for y in YS]
    for i, j in nulls:
        values[i][j] = None
    return Surface([XS, YS], {"train": values, "test": [[1.0] * len(XS)] * len(YS)})


def line(steep):
    return Surface([XS], {"train": [[steep * x * x if x < 1 else None for x in XS]]})


SEEDS = [[0.3, 0.2, 0.1, None], [0.4, 0.1, 0.05, 0.01]]
DRAW = {
    "landscapes": lambda path: figures.landscapes({"SAM": bowl(3), "LETS-SAM": bowl(0.5, [(0, 0)])}, path),
    "linear": lambda path: figures.landscapes({"SAM": bowl(3)}, path, log=False, ceiling=1.0),
    "flat": lambda path: figures.landscapes({"SAM": bowl(3)}, path, loss="test"),
    "nothing finite": lambda path: figures.landscapes({"a": Surface([XS, YS], {"l": [[None] * 5] * 3})}, path),
    "profiles": lambda path: figures.profiles({"SAM": line(3), "LETS-SAM": line(1)}, path),
    "gap": lambda path: figures.generalisation_gap({"sam": SEEDS}, {"sam": SEEDS[::-1]}, path),
    "convergence": lambda path: figures.convergence({"sam": SEEDS, "erm": [[1.0, 0.0, -1.0]]}, path),
    "radius": lambda path: figures.radius_paths({f"m{i}": [[0.1 * (i + 1), 0.2]] for i in range(9)}, path),
    "sensitivity": lambda path: figures.sensitivity({"fixed": {0.1: [70.0, 72.0], 0.2: [80.0]}}, {"erm": [60.0]}, path),
}


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.filterwarnings("error")
def test_both_images_are_real_and_repeatable(name, tmp_path):
    png, svg = DRAW[name](tmp_path / "new" / "figure.v1")
    assert [p.name for p in (png, svg)] == ["figure.v1.png", "figure.v1.svg"]
    pixels = matplotlib.image.imread(png)
    assert min(pixels.shape[:2]) >= 600
    assert pixels.std() > 0.01
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    again = DRAW[name](tmp_path / "again.png")
    assert [p.name for p in again] == ["again.png", "again.svg"]
    assert [p.read_bytes() for p in again] == [p.read_bytes() for p in (png, svg)]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    kept = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: kept.append(figure) or [])
    return kept


def test_landscapes_share_axes_and_colours_and_gaps_stay_empty(drawn):
    figures.landscapes({"SAM": bowl(3), "LETS-SAM": bowl(0.5, [(0, 0)])}, "x")
    *panels, bar = drawn[0].axes
    assert [p.get_title() for p in panels] == ["SAM", "LETS-SAM"]
    assert panels[0].get_xlim() == panels[1].get_xlim() == (-1, 1)
    first, second = (p.collections[0] for p in panels)
    assert first.get_clim() == second.get_clim() == pytest.approx((0.01, 6.01))
    assert type(first.norm).__name__ == "LogNorm"
    assert list(first.levels) == list(second.levels)
    assert bar.get_ylabel() == "train"
    assert second.zmax < 1.1


def test_curves_have_labels_and_the_scale_that_fits(drawn):
    figures.convergence({"sam": SEEDS}, "x")
    figures.radius_paths({"sam": SEEDS}, "x")
    figures.generalisation_gap({"sam": SEEDS}, {"sam": SEEDS[::-1]}, "x")
    figures.profiles({"sam": line(100.0)}, "x")
    figures.profiles({"sam": line(1.0)}, "x", log=False)
    axes = [figure.axes[0] for figure in drawn]
    assert [a.get_yscale() for a in axes] == ["log", "log", "linear", "linear", "linear"]  # a loss of 0 has no log
    assert axes[0].get_xlabel() == "epoch"
    assert axes[2].get_ylabel() == "test loss − training loss"
    mean = axes[0].lines[0].get_ydata()
    assert mean[:3] == pytest.approx([0.35, 0.15, 0.075])
    assert math.isnan(mean[3])
    gap = axes[2].lines[1].get_ydata()
    assert gap[:3] == pytest.approx([0.0, 0.0, 0.0])
    assert [t.get_text() for t in axes[0].get_legend().get_texts()] == ["sam"]


def test_methods_without_a_radius_are_level_lines(drawn):
    figures.sensitivity({"fixed": {0.2: [80.0, 82.0], 0.1: [70.0]}}, {"auto-sam": [90.0, 92.0, 97.0]}, "x")
    axes = drawn[0].axes[0]
    fixed, auto = axes.lines
    assert list(fixed.get_xdata()) == [0.1, 0.2]
    assert list(fixed.get_ydata()) == [70.0, 81.0]
    assert list(auto.get_ydata()) == [93.0, 93.0]
    assert list(auto.get_xdata()) == [0, 1]  # of the width of the axes
    assert axes.get_xscale() == "log"
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["fixed", "auto-sam"]


def test_epochs_are_whole_numbers(drawn):
    figures.convergence({"sam": [[0.3, 0.2, 0.1]]}, "x")
    drawn[0].canvas.draw()
    assert all(float(x).is_integer() for x in drawn[0].axes[0].get_xticks())


def test_bad_input_is_refused_in_one_line(tmp_path, monkeypatch):
    other = Surface([XS, [0.0, 1.0]], {"train": [[0.0] * 5] * 2})
    with pytest.raises(ValueError, match="different axes"):
        figures.landscapes({"a": bowl(1), "b": other}, tmp_path / "x")
    with pytest.raises(ValueError, match="choose from train, test"):
        figures.landscapes({"a": bowl(1)}, tmp_path / "x", loss="tset")
    with pytest.raises(ValueError, match=r"1 axes; landscapes\(\) draws two"):
        figures.landscapes({"a": line(1)}, tmp_path / "x")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'letsam\[cli\]'"):
        figures.convergence({"sam": SEEDS}, tmp_path / "x")
    assert not list(tmp_path.iterdir())
