"""fedmesh.sklearn, where scikit-learn is installed."""

from __future__ import annotations

import pathlib
import threading
from typing import Any, Dict

import numpy as np
import pytest
from host import Host

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.linear_model import SGDClassifier, SGDRegressor  # noqa: E402
from sklearn.neural_network import MLPClassifier, MLPRegressor  # noqa: E402

import fedmesh.sklearn  # noqa: E402
from fedmesh.trainer import Job  # noqa: E402

CENTERS = np.array([[2.0, 0, 0], [-2, 1, 0], [0, -2, 1]])


def rows(classes: int, n: int = 300) -> Any:
    """Classes around centers; or, for 0, a linear relation."""
    draw = np.random.default_rng(3)
    if not classes:
        x = draw.normal(size=(n, 3))
        return x, x @ [1.0, -2, 0.5] + 3 + 0.05 * draw.normal(size=n)
    y = draw.integers(classes, size=n)
    return CENTERS[y] + draw.normal(size=(n, 3)), y


ESTIMATORS: Dict[str, Any] = {
    "log": (SGDClassifier(loss="log_loss"), 3), "hinge": (SGDClassifier(), 2), "linear": (SGDRegressor(), 0),
    "mlp": (MLPClassifier(hidden_layer_sizes=8, solver="sgd", momentum=0, random_state=1), 3),
    "adam": (MLPRegressor(hidden_layer_sizes=8, solver="adam", random_state=1), 0),
}


def make(kind: str) -> fedmesh.sklearn.Sklearn:
    estimator, classes = ESTIMATORS[kind]
    x, y = rows(classes)
    return fedmesh.sklearn.Sklearn(estimator, x[:200], y[:200], classes=range(classes), held_out=(x[200:], y[200:]))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_each_estimator(kind: str, tmp_path: pathlib.Path) -> None:
    first = make(kind).parameters()
    if kind == "mlp":
        assert {name: a.shape for name, a in first.items()} == {
            "coef0": (3, 8), "coef1": (8, 3), "intercept0": (8,), "intercept1": (3,)}
        assert np.abs(first["coef0"]).min() > 0
    with Host(tmp_path, first, "test_sklearn:make", kind) as host:
        assert host.hello() == {"frame": "hello", "version": 1, "name": type(ESTIMATORS[kind][0]).__name__,
                                "rows": 200, "can": ["evaluate", "initial", "mixing", "rows"]}
        step = 0.01 if kind == "adam" else 0.2
        before = host.evaluate()
        got = host.fit(1, 150, step_size=step, batch_size=20)
        assert got["steps"] == 150 and got["risk_after"] < 0.3 * got["risk_before"]
        after = host.evaluate()
        score = "r2" if kind in ("linear", "adam") else "accuracy"
        assert after["risk"] < 0.4 * before["risk"] and after["metrics"][score] > 0.85, after
        one = host.params()
        host.put(first)
        host.fit(1, 150, step_size=step, batch_size=20)
        for name, array in host.params().items():  # the same again
            np.testing.assert_array_equal(array, one[name])
        if kind == "adam":
            return
        host.put(first)
        for k in range(1, 151):  # steps that nothing comes between are those of a block; only momentum would tell
            host.fit(k, k, step_size=step, batch_size=20, block=150)
        for name, array in host.params().items():
            np.testing.assert_allclose(array, one[name], rtol=1e-3, atol=1e-4)


def test_step_sizes_within_a_block() -> None:
    """The second step of a block is twice as long if its step size is."""
    x, y = rows(0, 50)
    t = fedmesh.sklearn.Sklearn(MLPRegressor(hidden_layer_sizes=4, solver="sgd", momentum=0, random_state=1), x, y)
    first = {name: a.copy() for name, a in t.parameters().items()}
    moved = []
    for step, step_size in ((1, 0.01), (2, 0.02)):
        params: Any = dict(first)
        t.fit(params, job(first=step, last=step, block=2, step_size=step_size))
        moved.append(params["coef0"] - first["coef0"])
    np.testing.assert_allclose(moved[1], 2 * moved[0], rtol=1e-6, atol=1e-12)


def test_network_step_is_a_gradient_step() -> None:
    """A step over all rows moves by the step size times the gradient, which differences of the risk confirm."""
    x, y = rows(0, 50)
    t = fedmesh.sklearn.Sklearn(MLPRegressor(hidden_layer_sizes=4, solver="sgd", momentum=0, alpha=0,
                                             activation="tanh", random_state=1), x, y)
    params = {name: a.astype(np.float64) for name, a in t.parameters().items()}
    moved: Any = {name: a.copy() for name, a in params.items()}
    t.fit(moved, job(step_size=0.01))
    moved = {name: a.copy() for name, a in moved.items()}
    for name, a in params.items():
        at = (0,) * a.ndim
        risks = []
        for d in (1e-5, -1e-5):
            near = {n: b.copy() for n, b in params.items()}
            near[name][at] += d
            risks.append(t.risk(near))
        assert moved[name][at] - a[at] == pytest.approx(-0.01 * (risks[0] - risks[1]) / 2e-5, rel=1e-4), name


def job(**fields: Any) -> Job:
    return Job({"frame": "fit", "first": 1, "last": 1, "block": 1, "step_size": 0.1, "batch_size": 0, "seed": 1,
                **fields}, threading.Event())


def test_sgd_step_is_nearly_a_gradient_step() -> None:
    x, y = rows(0, 50)
    t = fedmesh.sklearn.Sklearn(SGDRegressor(alpha=0), x, y)
    params: Any = t.parameters()
    t.fit(params, job(step_size=1e-4))
    np.testing.assert_allclose(params["coef"], 1e-4 * (y @ x) / 50, rtol=1e-3)
    np.testing.assert_allclose(params["intercept"], 1e-4 * y.mean(), rtol=1e-3)


def test_tensors_of_another_model(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, {"weight": [1.0]}, "test_sklearn:make", "log") as host:
        assert "the trainer's coef, intercept: fedmesh-trainer --initial" in host.hello("failed")["why"]
    with Host(tmp_path, {"coef": np.zeros((3, 4)), "intercept": np.zeros(3)}, "test_sklearn:make", "log") as host:
        assert "same columns and classes" in host.hello("failed")["why"]
    with pytest.raises(ValueError, match="3 rows of x and 2 of y"):
        fedmesh.sklearn.Sklearn(SGDRegressor(), np.zeros((3, 1)), [1, 2])
