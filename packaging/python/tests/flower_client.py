"""An app of Flower, as its documents write one. It knows nothing of fedmesh."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.client import Client, ClientApp, NumPyClient
from flwr.common import Context


def load(partition: int) -> Any:
    draw = np.random.default_rng(partition)
    x = draw.normal(size=(120, 3))
    return x, x @ [1.0, -2.0, 0.5] + 4


class FlowerClient(NumPyClient):  # type: ignore[misc]
    def __init__(self, partition: int = 0, epochs: int = 1, lr: float = 0.05) -> None:
        self.x, self.y = load(partition)
        self.weight, self.bias, self.batches = np.zeros(3), np.zeros(()), np.zeros((), np.int64)
        self.epochs, self.lr = epochs, lr

    def get_parameters(self, config: Any) -> Any:
        return [self.weight, self.bias, self.batches]

    def set_parameters(self, parameters: Any) -> None:
        self.weight, self.bias, self.batches = (np.array(p) for p in parameters)
        assert self.weight.dtype == np.float64 and self.batches.dtype == np.int64

    def fit(self, parameters: Any, config: Any) -> Any:
        self.set_parameters(parameters)
        for _ in range(self.epochs):
            for k in range(0, 100, 20):
                x, y = self.x[k:k + 20], self.y[k:k + 20]
                error = x @ self.weight + self.bias - y
                self.weight -= self.lr * error @ x / 20
                self.bias = self.bias - self.lr * error.mean()
                self.batches = self.batches + 1
        return self.get_parameters({}), 100, {
            "rounds": config["server_round"], "step": config["step_size"], "epochs": config.get("local-epochs", 0),
            "of": "people"}

    def evaluate(self, parameters: Any, config: Any) -> Any:
        self.set_parameters(parameters)
        error = self.x[100:] @ self.weight + self.bias - self.y[100:]
        return float(np.mean(error ** 2)), 20, {"worst": float(np.abs(error).max())}


class Quiet(FlowerClient):
    """Tells no parameters, as most clients of today."""

    def get_parameters(self, config: Any) -> Any:
        return []

    def set_parameters(self, parameters: Any) -> None:
        self.weight, self.bias, self.batches = parameters

    def fit(self, parameters: Any, config: Any) -> Any:
        _, rows, metrics = super().fit(parameters, config)
        return [self.weight, self.bias, self.batches], rows, metrics


class Deaf(FlowerClient):
    """Has no evaluate."""

    evaluate = NumPyClient.evaluate


def client_fn(context: Context) -> Client:
    partition = context.node_config["partition-id"]
    epochs = context.run_config["local-epochs"]
    return FlowerClient(int(partition), int(epochs)).to_client()


def old_client_fn(cid: str) -> Client:
    return FlowerClient(int(cid), 2).to_client()


client = FlowerClient(1, 2)
app = ClientApp(client_fn=client_fn)
