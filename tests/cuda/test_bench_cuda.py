"""`letsam bench` on a GPU."""

import json

import pytest
import torch

from letsam.cli import main

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_every_row_has_a_time_and_a_peak(tmp_path):
    out = tmp_path / "bench.json"
    arguments = ["--model", "resnet18:width=8", "--steps", "10", "--warmup", "5", "--out", str(out)]
    assert main(["bench", *arguments, "--methods", "erm", "sam", "auto-sam:every=5"]) == 0
    record = json.loads(out.read_text())
    assert record["settings"]["modes"] == ["eager", "captured"]
    for row in record["rows"]:
        assert row["error"] is None, row
        assert row["ms"] > 0
        assert row["peak_mib"] > 1
