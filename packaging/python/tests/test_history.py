"""fedmesh.history against `coordinator history export`: golden/, which TestPython of internal/history watches."""

from __future__ import annotations

import csv
import pathlib

import numpy as np
import pytest

from fedmesh import history

GOLDEN = pathlib.Path(__file__).parent / "golden"


def test_as_the_coordinator_exports_it() -> None:
    got = history.read(GOLDEN / "history.jsonl")
    with open(GOLDEN / "rounds.csv", newline="") as file:
        want = list(csv.DictReader(file))
    assert len(want) > 4 and set(got) == set(want[0])
    for name, column in got.items():
        assert len(column) == len(want)
        for value, line in zip(column, want):
            text = line[name]
            if name == "time":
                assert np.isnat(value) if text == "" else value == np.datetime64(text.rstrip("Z"))
            elif column.dtype.kind == "f":
                assert np.isnan(value) if text == "" else value == float(text), (name, line)
            else:
                assert str(value) == text, (name, line)


def test_selection() -> None:
    rounds = history.read(GOLDEN / "history.jsonl", kind="training", run=7)
    assert rounds["round"].tolist() == [2, 3, 4] and rounds["ended"].tolist() == ["", "", "patience"]
    assert rounds["risk"][1:].tolist() == [2.5, 1.5] and np.isnan(rounds["risk"][0])
    assert len(history.read(GOLDEN / "history.jsonl", run=8)["time"]) == 0


def test_lines(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"kind":"training","version":1,"time":"2026-03-01T12:00:00.123456789Z","later":{}}\n'
                    '{"kind":"training","version":2,"time":"2026-03-01T12:00:00Z"}\n{"kind":"trai')  # being written
    got = history.read(path)
    assert got["version"].tolist() == [1, 2]
    assert got["time"][0] == np.datetime64("2026-03-01T12:00:00.123456")
    for line in ("[]", "rubbish", '{"version":1}'):
        path.write_text(f'{{"kind":"training"}}\n{line}\n')
        with pytest.raises(ValueError, match="history.jsonl:2: no line of a history"):
            history.read(path)
