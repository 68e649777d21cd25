"""fedmesh.torch, where PyTorch is installed."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import numpy as np
import pytest
from host import Host

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import Dataset, TensorDataset  # noqa: E402

import fedmesh.torch  # noqa: E402
from fedmesh.trainer import Job  # noqa: E402


class Rows(Dataset):  # type: ignore[misc]
    """Two classes, as items of a dataset that knows no tensors of indices."""

    def __init__(self, n: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.y = draw.integers(2, size=n)
        self.x = (draw.normal(size=(n, 4)) + 2 * self.y[:, None]).astype(np.float32)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], self.y[i]


def net(*more: Any) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), *more, nn.Linear(8, 2))


def make(kind: str) -> fedmesh.torch.Torch:
    train, test = Rows(200, 1), Rows(100, 2)
    if kind == "tensors":
        tensors = TensorDataset(torch.from_numpy(train.x), torch.from_numpy(train.y))
        return fedmesh.torch.Torch(net(), nn.CrossEntropyLoss(), tensors)
    if kind == "workers":
        return fedmesh.torch.Torch(net(), nn.CrossEntropyLoss(), train, loader={"num_workers": 1})
    return fedmesh.torch.Torch(net(nn.Dropout(0.2)), nn.CrossEntropyLoss(), train, held_out=test,
                               optimizer=lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9))


def test_learns(tmp_path: pathlib.Path) -> None:
    first = make("items").parameters()
    assert set(first) == {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "4.weight",
                          "4.bias"}
    with Host(tmp_path, first, "test_torch:make", "items") as host:
        assert host.hello() == {"frame": "hello", "version": 1, "name": "Sequential", "rows": 200,
                                "can": ["evaluate", "initial", "mixing", "proximal", "rows"]}
        before = host.evaluate()
        got = host.fit(1, 60, step_size=0.05, batch_size=16)
        assert got["risk_after"] < 0.5 * got["risk_before"]
        after = host.evaluate()
        assert after["risk"] < 0.5 * before["risk"] and after["metrics"]["accuracy"] > 0.9 and after["rows"] == 100
        one = host.params()
        host.put(first)
        for k in range(1, 61):  # momentum lives between the parts of a block
            host.fit(k, k, step_size=0.05, batch_size=16, block=60)
        for name, array in host.params().items():
            np.testing.assert_array_equal(array, one[name])


@pytest.mark.parametrize("kind", ["tensors", "workers"])
def test_datasets(kind: str, tmp_path: pathlib.Path) -> None:
    """All ways to the rows give the same; a worker that is a process does not speak to agentd."""
    first = make(kind).parameters()
    train = Rows(200, 1)
    plain = fedmesh.torch.Torch(net(), nn.CrossEntropyLoss(), train)
    want: Any = dict(first)
    plain.fit(want, job(last=3, block=3, batch_size=7))
    with Host(tmp_path, first, "test_torch:make", kind) as host:
        assert host.hello()["can"] == ["initial", "mixing", "proximal", "rows"]
        host.fit(1, 3, batch_size=7, seed=1)
        for name, array in host.params().items():
            np.testing.assert_allclose(array, want[name], rtol=1e-5, atol=1e-6)
        many = 2**53 - 1
        request = host.ask_fit(1, many, step_size=1e-3, batch_size=7)
        while host.receive().get("steps", 0) < 5:
            pass
        host.send({"frame": "stop", "id": request})
        assert 5 <= host.answer("fitted", many)["steps"] < 1e6
        host.ask("evaluate")
        assert "no rows are held out" in host.answer("failed")["why"]


def job(**fields: Any) -> Job:
    return Job({"frame": "fit", "first": 1, "last": 1, "block": 1, "step_size": 0.1, "batch_size": 0, "seed": 1,
                **fields}, threading.Event())


def test_gradient_step() -> None:
    """A step over all rows moves by the step size times the gradient of the loss with the proximal term."""
    draw = np.random.default_rng(4)
    x = draw.normal(size=(30, 3)).astype(np.float32)
    y = (x @ [[1.0], [2], [-1]] + 0.5).astype(np.float32)
    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    t = fedmesh.torch.Torch(nn.Linear(3, 1), nn.MSELoss(), data)
    params: Any = {"weight": np.array([[0.5, 0, 1]], np.float32), "bias": np.array([0.25], np.float32)}
    base = {"weight": np.zeros((1, 3), np.float32), "bias": np.ones(1, np.float32)}
    moved = {name: a.copy() for name, a in params.items()}
    j = job(step_size=0.01, proximal=2.0)
    j.base = base
    t.fit(moved, j)
    error = x @ params["weight"].T + params["bias"] - y
    for name, gradient in (("weight", 2 * error.T @ x / 30), ("bias", 2 * error.mean(axis=0))):
        want = params[name] - 0.01 * (gradient + 2 * (params[name] - base[name]))
        np.testing.assert_allclose(moved[name], want, rtol=1e-5)
    assert t.risk(params) == pytest.approx(float((error ** 2).mean()), rel=1e-5)


def test_tensors_of_another_model(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, {"weight": [1.0]}, "test_torch:make", "items") as host:
        assert "fedmesh-trainer --initial" in host.hello("failed")["why"]
