"""fedmesh.flower, where Flower is installed, with the client of flower_client.py."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from host import Host

pytest.importorskip("flwr", reason="Flower is not installed")

from flower_client import FlowerClient  # noqa: E402

import fedmesh.flower  # noqa: E402
from fedmesh import _safetensors, trainer  # noqa: E402

FIRST = {"0000": np.zeros(3), "0001": np.zeros(()), "0002": np.zeros(())}
ADAPTER = "fedmesh.flower:Adapter"


@pytest.mark.parametrize("target,epochs", [
    (["flower_client:client_fn", "partition-id=1", "local-epochs=2"], 2), (["flower_client:client"], 0),
    (["flower_client:old_client_fn", "partition-id=1"], 0)])
def test_an_unchanged_client(target: Any, epochs: int, tmp_path: pathlib.Path) -> None:
    """What comes of it is what Flower's own round comes to with one client."""
    with Host(tmp_path, FIRST, ADAPTER, *target) as host:
        assert host.hello() == {"frame": "hello", "version": 1, "name": "FlowerClient", "rows": 100,
                                "can": ["evaluate", "initial", "mixing", "rows"]}
        client = FlowerClient(1, 2)
        want: Any = client.get_parameters({})
        for round in range(1, 4):
            got = host.fit(1, 2, round=str(round), step_size=0.25)
            for _ in range(2):
                want, _, _ = client.fit(want, {"server_round": round, "step_size": 0.25})
            assert got["metrics"] == {"rounds": round, "step": 0.25, "epochs": epochs} and got["rows"] == 100
            want = [a.astype(np.float32).astype(a.dtype) for a in want]
            for a, b in zip(host.params().values(), want):
                np.testing.assert_allclose(a, b, rtol=1e-6)
        assert host.params()["0002"] == 60 and got["risk_after"] < got["risk_before"]
        loss, rows, metrics = client.evaluate(want, {})
        got = host.evaluate()
        assert got["rows"] == rows and got["risk"] == pytest.approx(loss, rel=1e-4)
        assert got["metrics"]["worst"] == pytest.approx(metrics["worst"], rel=1e-4)


def test_initial(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "initial.safetensors")
    assert trainer.main(["--initial", path, ADAPTER, "flower_client:client"]) == 0
    arrays, _ = _safetensors.load(path)
    assert {name: a.shape for name, a in arrays.items()} == {name: a.shape for name, a in FIRST.items()}
    assert trainer.main(["--initial", path, ADAPTER, "flower_client:Quiet"]) == 1
    assert "Quiet has no get_parameters" in capsys.readouterr().err


def test_a_client_that_tells_no_parameters(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, ADAPTER, "flower_client:Quiet") as host:
        assert host.hello()["rows"] == 100
        assert host.fit(1, 3)["steps"] == 3
        assert host.params()["0002"] == 15
    with Host(tmp_path, {"0000": np.zeros(3)}, ADAPTER, "flower_client:Quiet") as host:
        host.hello("failed")


def test_what_is_none(tmp_path: pathlib.Path) -> None:
    for target, says in (("app", "the client is a ClientApp, want"), ("nothing", "no attribute"),
                         ("load", "TypeError")):
        with Host(tmp_path, FIRST, ADAPTER, f"flower_client:{target}") as host:
            assert says in host.hello("failed")["why"]
    with Host(tmp_path, FIRST, ADAPTER, "flower_client:client", "epochs") as host:
        assert "want KEY=VALUE" in host.hello("failed")["why"]
    with Host(tmp_path, {"w": [1.0]}, ADAPTER, "flower_client:client") as host:
        assert "the trainer's 0000, 0001, 0002" in host.hello("failed")["why"]
    with Host(tmp_path, FIRST, ADAPTER, "flower_client:Deaf") as host:
        assert host.hello()["can"] == ["initial", "mixing", "rows"]
        assert "Deaf has no evaluate" in host.fit(1, 1, "failed")["why"]


def test_settings() -> None:
    a = fedmesh.flower.Adapter(FlowerClient, "x=1", "y=0.5", "z=no json", "w=true")
    assert a.settings == {"x": 1, "y": 0.5, "z": "no json", "w": True}
