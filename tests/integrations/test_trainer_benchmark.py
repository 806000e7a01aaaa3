"""benchmarks/trainer_step.py runs and records; what it measures is no test's business."""

import importlib.util
import json
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "trainer_step.py"


def test_the_benchmark_records_every_contender(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("benchmarks_trainer_step", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    out = tmp_path / "trainer.json"
    script.main(["--size", "tiny", "--steps", "1", "--warmup", "1", "--rounds", "1", "--out", str(out)])
    record = json.loads(out.read_text())
    assert [row["name"] for row in record["rows"]] == list(script.CONTENDERS)
    assert record["rows"][0]["relative"] == 1.0
    assert all(row["ms"] > 0 for row in record["rows"])
    assert "auto-sam" in capsys.readouterr().out
