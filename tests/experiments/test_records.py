"""Records: a file that nobody can use is named in one line, and the others stay."""

import json
from dataclasses import asdict

import pytest
from made_records import run_record

from letsam.experiments.plan import Speeds
from letsam.experiments.records import FORMAT, records
from letsam.experiments.training import Training

GOOD = Training(method="sam", epochs=2)
OTHER = Training(method="erm", epochs=2)


def record(run, **changes):
    return run_record(run, [60.0] * run.epochs) | changes


BAD = {
    "cut": '{"kind": "letsam run", ',
    "a list": "[1, 2]",
    "a newer format": json.dumps(record(OTHER, format=FORMAT + 1)),
    "no identity": json.dumps({k: v for k, v in record(OTHER).items() if k != "identity"}),
    "another identity": json.dumps(record(OTHER, identity=GOOD.identity)),
    "an unknown setting": json.dumps(record(OTHER, training=asdict(OTHER) | {"unheard": 1})),
    "an unknown method": json.dumps(record(OTHER, training=asdict(OTHER) | {"method": "samm"})),
    "no rows": json.dumps(record(OTHER, rows=None)),
    "an environment that is none": json.dumps(record(OTHER, environment=3)),
    "no device": json.dumps(record(OTHER, environment={})),
    "no seconds": json.dumps({k: v for k, v in record(OTHER).items() if k != "seconds"}),
    "an accuracy that is a text": json.dumps(record(OTHER, result={"test_accuracy": "a", "rho": None})),
    "an empty result": json.dumps(record(OTHER, result={})),
    "no row": json.dumps(record(OTHER, rows=[])),
    "empty rows": json.dumps(record(OTHER, rows=[{}, {}])),
    "a loss that is a text": json.dumps(
        record(OTHER, rows=[row | {"train_loss": "a"} for row in record(OTHER)["rows"]])
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_the_bad_one_is_named_and_the_good_one_stays(tmp_path, capsys, bad):
    (tmp_path / "a.json").write_text(BAD[bad])
    (tmp_path / "b.json").write_text(json.dumps(record(GOOD)))
    assert list(records(tmp_path)) == [GOOD.identity]
    assert Speeds([tmp_path], "cpu").minutes(GOOD)[1]
    error = capsys.readouterr().err
    assert str(tmp_path / "a.json") in error
    assert error.count("\n") == 1


def test_other_kinds_are_passed_by_in_silence(tmp_path, capsys):
    (tmp_path / "a.json").write_text('{"kind": "letsam arithmetic"}')
    assert records(tmp_path) == {}
    assert capsys.readouterr().err == ""
