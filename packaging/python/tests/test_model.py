"""fedmesh.model against what the Go side predicts: golden/, which TestPython of modelfile writes and watches."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Callable, Dict

import numpy as np
import pytest

from fedmesh import _safetensors, model

GOLDEN = pathlib.Path(__file__).parent / "golden"
SAID: Dict[str, Any] = json.loads((GOLDEN / "predictions.json").read_text())
KINDS = {"linear": "linear", "plain": "linear", "huber": "linear", "logistic": "logistic", "softmax": "softmax",
         "tanh": "mlp", "relu": "mlp", "autoencoder": "autoencoder", "conv1d": "conv1d", "conv1d2": "conv1d"}


def rows(m: model.Model) -> Any:
    return np.array(SAID["rows"])[:, :len(m.features)]


def test_each_kind_is_there() -> None:
    assert SAID["values"].keys() == KINDS.keys() == {path.stem for path in GOLDEN.glob("*.safetensors")}


@pytest.mark.parametrize("name", KINDS)
def test_predictions(name: str) -> None:
    m = model.load(GOLDEN / f"{name}.safetensors")
    assert m.kind == KINDS[name] and len(m.features) == (12 if m.kind == "conv1d" else 3) and m.metadata["run"] == "3"
    got = m.predict(rows(m))
    assert got.shape == (20,)
    np.testing.assert_allclose(got, SAID["values"][name], rtol=1e-5, atol=1e-5)
    if name in SAID["classes"]:
        np.testing.assert_allclose(m.probabilities(rows(m)), SAID["classes"][name], rtol=1e-5, atol=1e-5)
    else:
        with pytest.raises(ValueError, match="knows no classes"):
            m.probabilities(rows(m))


def test_extreme_outputs() -> None:
    """No overflow, and no warning, which pytest would not pass over here."""
    arrays, metadata = _safetensors.load(GOLDEN / "softmax.safetensors")
    m = model.Model({name: 1e6 * a for name, a in arrays.items()}, metadata)
    with np.errstate(all="raise", under="ignore"):
        p = m.probabilities(rows(m))
    assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1)


def test_rows_of_another_shape() -> None:
    m = model.load(GOLDEN / "linear.safetensors")
    for other in ([1, 2, 3], [[1, 2]], [[[1, 2, 3]]]):
        with pytest.raises(ValueError, match=r"want \[rows, 3\]: the columns are temp"):
            m.predict(other)


def drop(key: str) -> Callable[[Dict[str, Any], Dict[str, str]], Any]:
    return lambda arrays, metadata: metadata.pop(key)


def put(key: str, value: str) -> Callable[[Dict[str, Any], Dict[str, str]], Any]:
    return lambda arrays, metadata: metadata.update({key: value})


@pytest.mark.parametrize("edit,says", [
    (drop("format"), "coordinator model export"), (put("format_version", "2"), "reads version 1: use a later version"),
    (put("kind", "forest"), "'forest'"), (drop("risk"), "the risk ''"),
    (put("personal", "layer1.bias"), "the personal tensors"),
    (drop("features"), "features is None"), (put("features", '["a", "b"]'), r"want \[units, 2\]"),
    (put("mean", "[1, 2]"), "mean has 2 numbers"), (put("scale", "{"), "scale is '{'"),
    (put("activation", "sine"), "'sine'"), (put("risk", "softmax"), "1 outputs for the risk softmax"),
    (lambda arrays, metadata: arrays.pop("layer0.weight"), "its tensors are"),
    (lambda arrays, metadata: arrays.update(x=np.zeros(1)), "its tensors are"),
    (lambda arrays, metadata: arrays.update({"layer1.bias": np.zeros(9)}), "layer 1 has"),
])
def test_damage(edit: Callable[[Dict[str, Any], Dict[str, str]], Any], says: str, tmp_path: pathlib.Path) -> None:
    arrays, metadata = _safetensors.load(GOLDEN / "tanh.safetensors")
    edit(arrays, metadata)
    path = tmp_path / "edited.safetensors"
    _safetensors.save(path, arrays, metadata)
    with pytest.raises(model.FormatError, match=says) as error:
        model.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("edit,says", [
    (drop("pool"), "pool is None"), (put("pool", "0"), "pool is 0"), (put("pool", "[2]"), r"pool is \[2\]"),
    (put("pool", "7"), "layer 0 leaves no step"),
    (put("pool", "1"), r"layer 1 has the shape \[3, 8\], want \[units, 20\]"),
    (put("features", '["a", "b", "c"]'), "3 features are not so many channels"),
    (lambda arrays, metadata: arrays.update({"layer0.weight": np.zeros((4, 4))}), "layer 0 has the shape"),
    (lambda arrays, metadata: arrays.update({"layer0.bias": np.zeros(3)}), r"a bias \[filters\]"),
])
def test_damaged_filters(edit: Callable[[Dict[str, Any], Dict[str, str]], Any], says: str) -> None:
    arrays, metadata = _safetensors.load(GOLDEN / "conv1d.safetensors")
    edit(arrays, metadata)
    with pytest.raises(model.FormatError, match=says):
        model.Model(arrays, metadata)


def test_the_same_bytes(tmp_path: pathlib.Path) -> None:
    """What is read and written again has the bytes that coordinator and agentd write."""
    for path in GOLDEN.glob("*.safetensors"):
        arrays, metadata = _safetensors.load(path)
        _safetensors.save(tmp_path / "again", arrays, metadata)
        assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_save(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "initial.safetensors"
    model.save(path, {"z": np.float64(1.5), "a": [[1, 2], [3, 4]], "é": np.zeros((0, 2)), "f": np.asfortranarray(
        np.arange(6).reshape(2, 3))})
    got = model.tensors(path)
    assert list(got) == ["a", "f", "z", "é"] and all(a.dtype == np.float32 for a in got.values())
    assert got["a"].tolist() == [[1, 2], [3, 4]] and got["z"].shape == () and got["z"] == 1.5
    assert got["f"].tolist() == [[0, 1, 2], [3, 4, 5]] and got["é"].shape == (0, 2)
    with pytest.raises(model.FormatError, match="does not contain format=fedmesh"):
        model.load(path)
    for bad, says in ((np.array([np.nan]), "NaN"), (np.array([1e300]), "infinite"), (np.array(["x"]), "real numbers"),
                      (np.array([1j]), "real numbers")):
        with pytest.raises(ValueError, match=says):
            model.save(path, {"x": bad})
    for name in ("", "__metadata__"):
        with pytest.raises(ValueError, match="reserved"):
            model.save(path, {name: [1.0]})
    assert list(model.tensors(path)) == ["a", "f", "z", "é"]
