"""Records: a file that nobody can use is named in one line, and the others stay."""

import json
from dataclasses import asdict

import pytest

from letsam.experiments.plan import Speeds
from letsam.experiments.record import environment
from letsam.experiments.records import FORMAT, RUN, records
from letsam.experiments.training import Training

GOOD = Training(method="sam")
OTHER = Training(method="erm")


def record(run, **changes):
    facts = {"identity": run.identity, "training": asdict(run), "result": {}, "rows": [{"seconds_with_test": 60.0}]}
    return {"kind": RUN, "format": FORMAT, "environment": environment("cpu"), **facts} | changes


BAD = {
    "cut": '{"kind": "letsam run", ',
    "a list": "[1, 2]",
    "a newer format": json.dumps(record(OTHER, format=FORMAT + 1)),
    "no identity": json.dumps({k: v for k, v in record(OTHER).items() if k != "identity"}),
    "another identity": json.dumps(record(OTHER, identity=GOOD.identity)),
    "an unknown setting": json.dumps(record(OTHER, training=asdict(OTHER) | {"unheard": 1})),
    "an unknown method": json.dumps(record(OTHER, training=asdict(OTHER) | {"method": "samm"})),
    "no rows": json.dumps(record(OTHER, rows=None)),
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
