"""A trainer that runs an unchanged client of Flower, a NumPyClient.

    # agentd.yaml
    trainers:
    - name: images
      command: [fedmesh-trainer, "fedmesh.flower:Adapter", "client:client_fn", "local-epochs=1"]
      dir: /opt/images

The first argument names a client, its class, or Flower's client_fn. The others, KEY=VALUE with a value in JSON or a
text, are the configuration: the client finds them in the config of `fit` and `evaluate`, and client_fn in
context.node_config and context.run_config. The config of `fit` has also server_round, step_size and batch_size of the
task.

- A step is one call of `fit`, which cannot be stopped: after `stop` agentd waits for its end, for `timeout` at most.
- Most clients have a learning rate of their own, and pass over step_size. Then the task wants `weighting: mean`.
- The arrays of the client's list are the tensors 0000, 0001, ..., as float32. Whole numbers among them are rounded.
- The risk is what `evaluate` says, on whatever rows that is.
- Only `fit` tells how many rows there are: it is called once, from zeros, when the program starts.
"""

from __future__ import annotations

import inspect
import json
import zlib
from typing import Any, Dict, List, Mapping, Optional, Set

import numpy as np
import numpy.typing as npt
from flwr.client import NumPyClient
from flwr.common import Context, RecordDict

from fedmesh.trainer import Evaluated, Fitted, Job, Start, Trainer, resolve

__all__ = ["Adapter"]

_MOST_METRICS = 16


class Adapter(Trainer):
    """Runs a NumPyClient.

    client     the client, its class, a function that makes it of a Context, or MODULE:NAME of one of these
    settings   KEY=VALUE
    """

    def __init__(self, client: Any, *settings: str) -> None:
        self.settings = dict(map(_setting, settings))
        self.client = self._made(resolve(client) if isinstance(client, str) else client)
        self.name = type(self.client).__name__
        self._types: List[Any] = []
        self._rows = 0

    def _made(self, client: Any) -> Any:
        if isinstance(client, type):
            client = client()
        elif inspect.isroutine(client):
            client = client(*self._context(client))
        client = getattr(client, "numpy_client", client)  # of what to_client() made
        if not isinstance(client, NumPyClient):
            raise TypeError(f"the client is a {type(client).__name__}, want a flwr.client.NumPyClient, its class, or a "
                            "client_fn that makes one")
        return client

    def _context(self, client_fn: Any) -> List[Any]:
        """Return what a client_fn takes: a context, or as in earlier versions of Flower a text."""
        takes = list(inspect.signature(client_fn).parameters.values())
        if not takes:
            return []
        if takes[0].name == "cid" or takes[0].annotation in (str, "str"):
            return [str(self.settings.get("partition-id", 0))]
        node = zlib.crc32(json.dumps(self.settings, sort_keys=True).encode())
        return [Context(run_id=1, node_id=node, node_config=dict(self.settings), state=RecordDict(),
                        run_config=dict(self.settings))]

    def begin(self, start: Start) -> None:
        """Find out how many rows there are, and compare the task's tensors with the client's."""
        known = self.parameters(necessary=False)
        if known:
            start.check(known)
        zeros = {name: np.zeros(shape, np.float32) for name, shape in start.shapes.items()}
        _, self._rows, _ = self._fit(self._list(zeros), {"server_round": 0, "step_size": 0.0, "batch_size": 0})

    def can(self) -> Set[str]:
        """Tell that devices may mix, whether the client evaluates, and whether it has parameters to begin with."""
        begins = type(self.client).get_parameters is not NumPyClient.get_parameters
        return {"mixing"} | ({"evaluate"} if self._evaluates() else set()) | ({"initial"} if begins else set())

    def _evaluates(self) -> bool:
        return type(self.client).evaluate is not NumPyClient.evaluate

    def rows(self) -> int:
        """Tell what `fit` last told."""
        return self._rows

    def fit(self, params: Dict[str, npt.NDArray[Any]], job: Job) -> Fitted:
        """Call the client's fit for each step."""
        metrics: Mapping[str, Any] = {}
        arrays = self._list(params)
        number = job.round.rpartition("/")[2]
        for _ in job:
            arrays, self._rows, metrics = self._fit(arrays, {
                "server_round": int(number) if number.isdecimal() else 0, "step_size": job.step_size,
                "batch_size": job.batch_size})
        params.update(zip(sorted(params), arrays))
        return Fitted(_numbers(metrics))

    def _fit(self, arrays: List[npt.NDArray[Any]], config: Dict[str, Any]) -> Any:
        shapes = [a.shape for a in arrays]
        new, rows, metrics = self.client.fit(arrays, {**config, **self.settings})
        new = [np.asarray(a) for a in new]
        if [a.shape for a in new] != shapes:
            raise ValueError(f"the client's fit returns arrays of the shapes {[list(a.shape) for a in new]}, the "
                             f"task's tensors have {[list(shape) for shape in shapes]}: fedmesh-trainer --initial "
                             "writes the model to begin with")
        return new, rows, metrics

    def _list(self, params: Mapping[str, npt.NDArray[Any]]) -> List[npt.NDArray[Any]]:
        """Return the arrays for the client, of the types that it has itself, if it tells."""
        arrays = [params[name] for name in sorted(params)]
        if len(self._types) != len(arrays):
            return arrays
        return [np.rint(a).astype(t) if t.kind in "iub" else a.astype(t) for a, t in zip(arrays, self._types)]

    def risk(self, params: Mapping[str, npt.NDArray[Any]]) -> float:
        """Return the loss that the client's evaluate tells."""
        return self.evaluate(params).risk  # type: ignore[return-value]

    def evaluate(self, params: Mapping[str, npt.NDArray[Any]]) -> Evaluated:
        """Call the client's evaluate."""
        if not self._evaluates():
            raise NotImplementedError(f"{self.name} has no evaluate: agentd wants the loss before and after fit")
        loss, rows, metrics = self.client.evaluate(self._list(params), dict(self.settings))
        return Evaluated(rows, float(loss), _numbers(metrics))

    def parameters(self, necessary: bool = True) -> Dict[str, npt.NDArray[Any]]:
        """Return what the client's get_parameters does."""
        arrays = [np.asarray(a) for a in self.client.get_parameters(dict(self.settings))]
        if not arrays and necessary:
            raise NotImplementedError(f"{self.name} has no get_parameters: write the first model with "
                                      "fedmesh.model.save, its arrays under the names 0000, 0001, ...")
        self._types = [a.dtype for a in arrays]
        return {f"{i:04d}": a for i, a in enumerate(arrays)}


def _setting(text: str) -> Any:
    key, found, value = text.partition("=")
    if not found or not key:
        raise ValueError(f"a setting is {text!r}, want KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _numbers(metrics: Optional[Mapping[str, Any]]) -> Dict[str, float]:
    """Return those metrics that agentd takes."""
    numbers = {k: float(v) for k, v in (metrics or {}).items() if isinstance(v, (int, float)) and np.isfinite(v)}
    return dict(list(numbers.items())[:_MOST_METRICS])
