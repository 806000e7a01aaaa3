"""benchmarks/sweep.py on tiny points: one record, written point by point, gone on with; and its chart."""

import json
import sys

import pytest
import torch
from PIL import Image
from scripts import load

sweep, charts = load("sweep"), load("charts")


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["sweep.py", *map(str, arguments)])
    return sweep.main()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The records of every sweep, in one folder."""
    folder = tmp_path_factory.mktemp("sweeps")
    with pytest.MonkeyPatch.context() as patch:
        for name in sweep.SWEEPS:
            assert call(patch, name, "--tiny", "--out", folder) == 0
    return folder


def read(folder, name):
    return json.loads((folder / f"sweep-{name}.json").read_text())


@pytest.mark.parametrize(("name", "values"), [("size", (1208, 3952)), ("tensors", (4, 8)), ("batch", (2, 4))])
def test_every_point_is_a_record_of_the_bench(done, name, values):
    record = read(done, name)
    assert (record["kind"], record["sweep"], record["tiny"]) == ("letsam sweep", name, True)
    assert tuple(point[record["axis"]] for point in record["points"]) == values
    for point in record["points"]:
        rows = [row["name"] for row in point["record"]["rows"] if row["kind"] != "peer"]
        assert rows[1:] == ["two passes", *sweep.METHODS]
        assert not any(row["error"] for row in point["record"]["rows"])


def test_a_sweep_goes_on_where_it_stopped(done, tmp_path, monkeypatch, capsys):
    whole = read(done, "tensors")
    path = tmp_path / "sweep-tensors.json"
    path.write_text(json.dumps(whole | {"points": whole["points"][:1]}))
    timed = []
    monkeypatch.setattr(sweep, "run", lambda settings, _: timed.append(settings.model) or whole["points"][1]["record"])
    assert call(monkeypatch, "tensors", "--tiny", "--out", tmp_path, "--seconds", "-1") == 0
    assert timed == []
    assert "before point 2 of 2: run it again to go on" in capsys.readouterr().err
    assert call(monkeypatch, "tensors", "--tiny", "--out", tmp_path) == 0
    assert timed == ["mlp-2000:layers=4,width=4"]
    assert json.loads(path.read_text()) == whole
    assert call(monkeypatch, "tensors", "--tiny", "--out", tmp_path) == 0  # nothing is left to do
    assert len(timed) == 1


def test_an_interrupted_point_leaves_those_before_it(done, tmp_path, monkeypatch, capsys):
    records = [point["record"] for point in read(done, "size")["points"]]

    def interrupted(settings, _):
        if "width=16" in settings.model:
            raise KeyboardInterrupt
        return records[0]

    monkeypatch.setattr(sweep, "run", interrupted)
    assert call(monkeypatch, "size", "--tiny", "--out", tmp_path) == 130
    assert "run it again to go on" in capsys.readouterr().err
    assert [point["record"] for point in read(tmp_path, "size")["points"]] == records[:1]


def test_what_it_refuses_in_one_line(done, tmp_path, monkeypatch, capsys):
    def refused(*arguments):
        assert call(monkeypatch, *arguments) == 2
        err = capsys.readouterr().err
        assert err.startswith("sweep: ")
        assert err.count("\n") == 1
        return err

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "--tiny runs on the CPU" in refused("size", "--out", tmp_path)
    path = tmp_path / "sweep-size.json"
    path.write_text("[]")
    assert "no record of this sweep" in refused("size", "--tiny", "--out", tmp_path)
    path.write_text(json.dumps(read(done, "batch")))
    assert "no record of this sweep" in refused("size", "--tiny", "--out", tmp_path)
    other = read(done, "size")
    other["points"][0]["record"]["environment"]["torch"] = "1.0"
    path.write_text(json.dumps(other))
    assert "was begun on" in refused("size", "--tiny", "--out", tmp_path)


def test_full_sweeps_are_settings_that_can_be_timed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for points, _, _ in sweep.SWEEPS.values():
        for settings in (point.resolved() for point in points(False)):
            assert (settings.device, settings.modes) == ("cuda", ("eager", "captured"))
            assert settings.steps % 10 == 0


def test_charts_of_sweeps_and_records(done, tmp_path, monkeypatch):
    record = read(done, "batch")
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "sweep-batch.json").write_text(json.dumps(record))
    (folder / "resnet18.json").write_text(json.dumps(record["points"][0]["record"]))
    (folder / "arithmetic.json").write_text('{"kind": "letsam arithmetic"}')
    monkeypatch.setattr(sys, "argv", ["charts.py", str(folder), str(tmp_path / "images")])
    charts.main()
    images = sorted((tmp_path / "images").iterdir())
    assert [path.name for path in images] == ["bench-resnet18.png", "sweep-batch.png"]
    for path in images:
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 300


def test_lines_stand_beside_the_plain_loop():
    def row(name, kind, mode, ms):
        return {"name": name, "kind": kind, "mode": mode, "ms": ms, "error": None}

    def point(x, plain):
        rows = [
            row("torch SGD", "plain", "eager", plain),
            row("two passes", "two passes", "eager", 2 * plain),
            row("peer", "peer", "eager", 3.0),
            row("sam", "letsam", "captured", 1.0),
            row("sam", "letsam", "eager", None) | {"error": "out of memory"},
        ]
        return {"batch": x, "record": {"rows": rows}}

    found = charts.lines({"axis": "batch", "points": [point(64, 4.0), point(32, 2.0)]})
    assert found == {("two passes", "eager"): [(32, 2.0), (64, 2.0)], ("sam", "captured"): [(32, 0.5), (64, 0.25)]}
