"""Models that a federation has trained, and the one that a task begins with.

    model = fedmesh.model.load("model.safetensors")    # of `coordinator model export`, or an agent's own
    model.predict(rows)                                # rows in the units of the data, a column per model.features

    fedmesh.model.save("initial.safetensors", {"weight": np.zeros((10, 784)), "bias": np.zeros(10)})
    fedmesh.model.tensors("model.safetensors")         # the arrays of any such file
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np
import numpy.typing as npt

from fedmesh import _safetensors
from fedmesh._safetensors import FormatError, Path

__all__ = ["FormatError", "Model", "load", "save", "tensors"]

Floats = npt.NDArray[np.float64]

_RISKS = {"squared", "huber", "logistic", "softmax"}
_KINDS = {"linear", "logistic", "softmax", "mlp", "autoencoder", "conv1d"}
_ACTIVATIONS: Dict[str, Callable[[Floats], Floats]] = {
    "tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "identity": lambda z: z}


class Model:
    """A model of one of the kinds that agentd trains itself, with its columns and its standardisation.

    features   names of the columns, in their order
    target     the name of what is predicted; empty of an autoencoder
    kind       linear, logistic, softmax, mlp, autoencoder or conv1d
    metadata   all that the file says of the model: task, run, version, hash, ...
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
        self.metadata = dict(metadata)
        if metadata.get("format") != "fedmesh":
            raise FormatError("the metadata does not contain format=fedmesh: "
                              "use a file written by `coordinator model export`")
        if metadata.get("format_version") != "1":
            raise FormatError(f"format_version is {metadata.get('format_version')!r}, "
                              "but this package reads version 1: use a later version")
        if metadata.get("personal"):
            raise FormatError(f"the personal tensors {metadata['personal']} are not in the file: "
                              "use a model file of a device")
        self.kind = metadata.get("kind", "")
        self._risk = metadata.get("risk", "")
        if self.kind and self.kind not in _KINDS or self._risk not in _RISKS:
            raise FormatError(f"its kind is {self.kind!r} with the risk {self._risk!r}, which this package does not "
                              "know: fedmesh.model.tensors reads its arrays")
        self.features: List[str] = _json(metadata, "features")
        self.target = metadata.get("target", "")
        self._layers = _layers(arrays)
        self._pool = _json(metadata, "pool") if self.kind == "conv1d" else 0
        activation = metadata.get("activation", "")
        if len(self._layers) > 1 and activation not in _ACTIVATIONS:
            raise FormatError(f"its activation is {activation!r}, want one of {', '.join(_ACTIVATIONS)}")
        self._activation = _ACTIVATIONS.get(activation)
        self._mean = _numbers(metadata, "mean")
        self._scale = _numbers(metadata, "scale")
        self._clip = float(_json(metadata, "clip"))
        self._check()

    def _check(self) -> None:
        inputs = self._check_filters()
        for i, (weight, bias) in enumerate(self._layers):
            if i < self._filters:
                continue
            if weight.ndim != 2 or weight.shape[1] != inputs or bias is not None and bias.shape != weight.shape[:1]:
                raise FormatError(f"layer {i} has the shape {list(weight.shape)}, want [units, {inputs}], and a bias "
                                  "[units] or none")
            inputs = weight.shape[0]
        if self.kind == "autoencoder":
            if inputs != len(self.features) or self._risk != "squared":
                raise FormatError(f"{inputs} outputs with the risk {self._risk} for {len(self.features)} features: an "
                                  "autoencoder has as many, and the risk squared")
        elif (inputs > 1) != (self._risk == "softmax"):
            raise FormatError(f"{inputs} outputs for the risk {self._risk}")
        for name, values in (("mean", self._mean), ("scale", self._scale)):
            if values is not None and values.shape != (len(self.features) + 1,):
                raise FormatError(f"metadata: {name} has {values.size} numbers, want one for each of "
                                  f"{len(self.features)} features, and one for the target")

    def _check_filters(self) -> int:
        """Set how many layers are filters, and channels; return the number of inputs of the layer after them."""
        self._filters = 0
        if self.kind != "conv1d":
            return len(self.features)
        if not isinstance(self._pool, int) or self._pool < 1:
            raise FormatError(f"metadata: pool is {self._pool!r}, want a number of 1 or more")
        shape = self._layers[0][0].shape
        channels = shape[1] if len(shape) == 3 else 0
        if channels < 1 or len(self.features) % channels:
            raise FormatError(f"layer 0 has the shape {list(shape)}, want [filters, channels, kernel]: "
                              f"{len(self.features)} features are not so many channels")
        self._channels, steps = channels, len(self.features) // channels
        for i, (weight, bias) in enumerate(self._layers):
            if weight.ndim != 3:
                break
            if weight.shape[1] != channels or bias is not None and bias.shape != weight.shape[:1]:
                raise FormatError(f"layer {i} has the shape {list(weight.shape)}, want [filters, {channels}, kernel], "
                                  "and a bias [filters] or none")
            channels, steps = weight.shape[0], (steps - weight.shape[2] + 1) // self._pool
            if steps < 1:
                raise FormatError(f"layer {i} leaves no step: its kernel has {weight.shape[2]}, its pool {self._pool}")
            self._filters += 1
        return channels * steps

    def _standardized(self, rows: npt.ArrayLike) -> Floats:
        x = np.asarray(rows, np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.features):
            raise ValueError(f"rows of the shape {list(x.shape)}, want [rows, {len(self.features)}]: the columns are "
                             f"{', '.join(self.features[:20])}")
        if self._mean is not None and self._scale is not None:
            x = (x - self._mean[:-1]) / self._scale[:-1]
            if self._clip > 0:
                x = np.clip(x, -self._clip, self._clip)
        return np.asarray(x)

    def _found(self, x: Floats) -> Floats:
        """Return what the filters find in rows [rows, channels * steps]: [rows, filters * steps]."""
        if not self._filters:
            return x
        x = x.reshape(len(x), self._channels, -1)
        for weight, bias in self._layers[:self._filters]:
            kernel = weight.shape[2]
            steps = x.shape[2] - kernel + 1
            z = np.stack([np.tensordot(x[:, :, t:t + kernel], weight, ((1, 2), (1, 2))) for t in range(steps)], axis=2)
            if bias is not None:
                z = z + bias[:, None]
            kept = steps // self._pool
            z = z[:, :, :kept * self._pool].reshape(len(z), -1, kept, self._pool).max(axis=3)
            x = z if self._activation is None else self._activation(z)
        return np.asarray(x.reshape(len(x), -1))

    def _outputs(self, x: Floats) -> Floats:
        x = self._found(x)
        for i, (weight, bias) in enumerate(self._layers[self._filters:]):
            if i and self._activation is not None:
                x = self._activation(x)
            x = x @ weight.T
            if bias is not None:
                x = x + bias
        return np.asarray(x)

    def predict(self, rows: npt.ArrayLike) -> Floats:
        """Return a prediction for each row [rows, features]: a number in the target's units, or the class.

        Of an autoencoder it is the error with which it gives the row back, in standard deviations: the root of the
        mean square over the features. A high one is an anomaly.
        """
        if self._risk in ("logistic", "softmax"):
            return np.asarray(np.argmax(self.probabilities(rows), axis=1), np.float64)
        x = self._standardized(rows)
        z = self._outputs(x)
        if self.kind == "autoencoder":
            return np.asarray(np.sqrt(np.mean((z - x) ** 2, axis=1)))
        z = z[:, 0]
        if self._mean is not None and self._scale is not None:
            z = z * self._scale[-1] + self._mean[-1]
        return np.asarray(z)

    def probabilities(self, rows: npt.ArrayLike) -> Floats:
        """Return the probabilities of the classes [rows, classes].

        Of two classes the second is the label 1, and the first the label 0 or -1.
        """
        if self._risk not in ("logistic", "softmax"):
            raise ValueError("the model predicts a number, and knows no classes: use predict")
        z = self._outputs(self._standardized(rows))
        if self._risk == "logistic":
            z = np.concatenate([np.zeros_like(z), z], axis=1)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))


def _json(metadata: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(metadata[key])
    except (KeyError, ValueError):
        raise FormatError(f"metadata: {key} is {metadata.get(key)!r}, want JSON") from None


def _numbers(metadata: Mapping[str, str], key: str) -> Optional[Floats]:
    values = _json(metadata, key)
    return np.array(values, np.float64) if values else None


def _layers(arrays: Mapping[str, npt.NDArray[Any]]) -> List[Tuple[Floats, Optional[Floats]]]:
    layers: List[Tuple[Floats, Optional[Floats]]] = []
    left = {name: array.astype(np.float64) for name, array in arrays.items()}
    while f"layer{len(layers)}.weight" in left:
        name = f"layer{len(layers)}"
        layers.append((left.pop(f"{name}.weight"), left.pop(f"{name}.bias", None)))
    if left or not layers:
        raise FormatError(f"its tensors are {', '.join(arrays) or 'none'}, want layer0.weight, layer0.bias, ...: "
                          "fedmesh.model.tensors reads its arrays")
    return layers


def load(path: Path) -> Model:
    """Read the file of a model (docs/MODEL.md) of `coordinator model export` or of an agent."""
    arrays, metadata = _safetensors.load(path)
    try:
        return Model(arrays, metadata)
    except FormatError as e:
        raise FormatError(f"{path}: {e}") from None


def tensors(path: Path) -> Dict[str, npt.NDArray[Any]]:
    """Read the arrays of a file, of whatever kind its model is."""
    return _safetensors.load(path)[0]


def save(path: Path, arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write the file that `task.model.initial` of a task names: its arrays are the model and its first parameters.

    Numbers become float32. A NaN, or a number that is too large for one, is an error.
    """
    _safetensors.save(path, arrays, {})
