"""The first example of README.md, run as it stands."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from host import HERE, Host

from fedmesh import trainer


def test_readme(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (HERE.parent / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "plant.py").write_text(code)
    draw = np.random.default_rng(1)
    x = draw.normal(size=(500, 3))
    y = x @ [2, -1, 0.5] + 3 + 0.1 * draw.normal(size=500)
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x, y]), delimiter=",", header="a,b,c,y", comments="")
    monkeypatch.chdir(tmp_path)
    assert trainer.main(["--initial", "model.safetensors", "plant:Plant"]) == 0
    with Host(tmp_path, {"weight": np.zeros(3), "bias": 0.0}, "plant:Plant") as host:
        assert (tmp_path / "model.safetensors").read_bytes() == host.path.read_bytes()
        assert host.hello()["rows"] == 400
        before = host.evaluate()["risk"]
        host.fit(1, 200, step_size=0.1, batch_size=16)
        after = host.evaluate()
        assert before > 5 and after["risk"] < 0.01 and after["rows"] == 100
        np.testing.assert_allclose(host.params()["weight"], [2, -1, 0.5], atol=0.05)
