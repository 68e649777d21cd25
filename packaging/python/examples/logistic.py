"""Logistic regression with numpy alone, on the rows of a CSV file.

    trainers:
    - name: logistic
      command: [fedmesh-trainer, "logistic:Logistic", rows.csv, label]
      dir: /opt/logistic

The file has a line of names; the column `label` has 0 and 1, the others are features, which are best near 0 with a
spread near 1 on all devices. The last fifth of the rows is held out. A step is the gradient of the mean log loss over
the batch's rows.
"""

from __future__ import annotations

import csv
from typing import Any, Dict, Set

import numpy as np
import numpy.typing as npt

from fedmesh.trainer import Evaluated, Job, Trainer


class Logistic(Trainer):
    name = "logistic regression"

    def __init__(self, path: str, label: str) -> None:
        with open(path, newline="", encoding="utf-8") as file:
            names = next(csv.reader(file))
            table = np.loadtxt(file, delimiter=",", ndmin=2)
        at = names.index(label)
        x, y = np.delete(table, at, axis=1), table[:, at]
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"{path}: the column {label} has other numbers than 0 and 1")
        n = len(x) - len(x) // 5
        self.x, self.y, self.new_x, self.new_y = x[:n], y[:n], x[n:], y[n:]

    def can(self) -> Set[str]:
        return super().can() | {"mixing", "proximal"}

    def rows(self) -> int:
        return len(self.x)

    def outputs(self, params: Dict[str, Any], x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(x @ params["weight"] + params["bias"])

    def loss(self, params: Dict[str, Any], x: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
        z = self.outputs(params, x)
        return float(np.mean(np.logaddexp(0, z) - y * z))

    def risk(self, params: Dict[str, Any]) -> float:
        return self.loss(params, self.x, self.y)

    def fit(self, params: Dict[str, Any], job: Job) -> None:
        for step in job:
            pick = job.batch(step, len(self.x))
            x = self.x[pick]
            error = 0.5 + 0.5 * np.tanh(self.outputs(params, x) / 2) - self.y[pick]
            gradient = {"weight": error @ x / len(x), "bias": error.mean()}
            for name, g in gradient.items():
                if job.proximal:
                    g = g + job.proximal * (params[name] - job.base[name])
                params[name] = params[name] - job.step_size * g

    def evaluate(self, params: Dict[str, Any]) -> Evaluated:
        right = (self.outputs(params, self.new_x) > 0) == (self.new_y == 1)
        return Evaluated(len(right), self.loss(params, self.new_x, self.new_y), {"accuracy": right.mean()})

    def parameters(self) -> Dict[str, Any]:
        return {"weight": np.zeros(self.x.shape[1]), "bias": 0.0}
