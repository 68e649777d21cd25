"""The examples, each in a block of a round."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import numpy as np
import pytest
from host import HERE, Host

from fedmesh import _safetensors, trainer


def initial(folder: pathlib.Path, *target: str) -> Any:
    path = str(folder / "initial.safetensors")
    assert trainer.main(["--initial", path, *target]) == 0
    return _safetensors.load(path)[0]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent / "examples"))


def test_logistic(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(1000, 2))
    y = draw.random(1000) < 1 / (1 + np.exp(-(3 * x[:, 0] - x[:, 1] + 0.5)))
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x[:, 0], y, x[:, 1]]), delimiter=",", header="a,label,b",
               comments="")
    monkeypatch.chdir(tmp_path)
    target = ("logistic:Logistic", "rows.csv", "label")
    with Host(tmp_path, initial(tmp_path, *target), *target) as host:
        assert host.hello() == {"frame": "hello", "version": 1, "name": "logistic regression", "rows": 800,
                                "can": ["evaluate", "initial", "mixing", "proximal", "rows"]}
        # Two steps over all rows, written out.
        train_x, train_y = x[:800], y[:800]
        w: Any = np.zeros(3, np.float32)
        inputs = np.column_stack([train_x, np.ones(800)])
        for step in range(2):
            slope = (1 / (1 + np.exp(-inputs @ w)) - train_y) @ inputs / 800 + (0.1 * w if step else 0)
            w = w - 0.5 * slope
        host.fit(1, 2, step_size=0.5, proximal=0.1)
        np.testing.assert_allclose(host.params()["weight"], w[:2], rtol=1e-6)
        np.testing.assert_allclose(host.params()["bias"], w[2], rtol=1e-6)
        got = host.fit(1, 500, step_size=0.5, batch_size=32)
        assert got["risk_after"] < got["risk_before"]
        after = host.evaluate()
        assert after["rows"] == 200 and after["metrics"]["accuracy"] > 0.8 and after["risk"] < 0.45
        np.testing.assert_allclose(host.params()["weight"], [3, -1], atol=0.8)


def test_digits(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    with Host(tmp_path, initial(tmp_path, "digits:make"), "digits:make", "1", "2") as host:
        assert host.hello()["rows"] == 719
        host.fit(1, 400, step_size=0.3, batch_size=32)
        assert host.evaluate()["metrics"]["accuracy"] > 0.85


def test_fashion(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    if not os.path.exists("/usr/share/datasets/fashion-mnist"):
        pytest.skip("dataset-fashion-mnist is not installed")
    target = ("fashion:make", "3", "10", "2000")
    with Host(tmp_path, initial(tmp_path, *target), *target) as host:
        assert host.hello()["rows"] == 2000
        host.fit(1, 150, step_size=0.1, batch_size=32)
        got = host.evaluate()
        assert got["rows"] == 1000 and got["metrics"]["accuracy"] > 0.65, got
