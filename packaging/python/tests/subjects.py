"""Trainers that the tests run, good and bad."""

from __future__ import annotations

import datetime
import os
import sys
import threading
from typing import Any, Iterator, Mapping, Optional, Set

import numpy as np

from fedmesh.trainer import Evaluated, Fitted, Job, Prediction, Start, Trainer, run

print("what a module prints when it is imported is not for agentd")


class Quadratic(Trainer):
    """The loss is half the square of x - 1, in all elements."""

    name = "a quadratic"

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    def begin(self, start: Start) -> None:
        assert (start.federation, start.device, start.task) == ("plant", "d1", "t"), start
        assert "w" not in start.shapes or start.shapes == {"w": (2, 3), "b": (), "none": (0, 4)}, start

    def can(self) -> Set[str]:
        return super().can() | {"mixing", "proximal"}

    def rows(self) -> int:
        return 3 + len(self.arguments)

    def risk(self, params: Mapping[str, Any]) -> float:
        risk = sum(np.sum((x - 1) ** 2) for x in params.values()) / 2
        for x in params.values():
            x += 100  # of copies
        return float(risk)

    def fit(self, params: Any, job: Job) -> Optional[Fitted]:
        for _ in job:
            for name, x in params.items():
                back = job.proximal * (x - job.base[name]) if job.proximal else 0
                params[name] = x - np.float32(job.step_size) * (x - 1 + back)
        print("printed by fit")
        return Fitted({"steps": np.float32(job.steps)})

    def evaluate(self, params: Any) -> Evaluated:
        return Evaluated(np.int64(2), self.risk(params), {"accuracy": 0.5})

    def parameters(self) -> Mapping[str, Any]:
        return {"b": 0.5, "w": np.arange(6.0).reshape(2, 3)}


class Begins(Quadratic):
    """A trainer of any tensors that its task has."""

    def begin(self, start: Start) -> None:
        pass


class Foresees(Quadratic):
    """Predicts the first number of its model: of 3,000 rows, then of one row in each call, and then what is wrong."""

    calls = 0

    def begin(self, start: Start) -> None:
        pass

    def predict(self, params: Any) -> Iterator[Prediction]:
        self.calls += 1
        x = params["x"][0]
        at = datetime.datetime(2026, 3, 1, 7, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
        if self.calls == 1:
            for k in range(3000):
                yield Prediction(np.float32(k), at, residual=0.5)
        if self.calls == 2:
            yield Prediction(x, probabilities=np.array([0.25, 0.75]))
        if self.calls == 3:
            yield Prediction(1.0, datetime.datetime(2026, 3, 1))
        if self.calls == 4:
            yield Prediction(x / 0.0)


class Draws(Trainer):
    """Writes what it draws, at the place of the step."""

    def rows(self) -> int:
        return 1000

    def risk(self, params: Any) -> float:
        return 0.0

    def fit(self, params: Any, job: Job) -> None:
        for step in job:
            pick = np.arange(1000)[job.batch(step, 1000)]
            params["x"][step - 1] = pick.sum() + job.rng(step).normal()


class Bad(Quadratic):
    """Goes wrong in a way that its argument names."""

    def fit(self, params: Any, job: Job) -> Optional[Fitted]:
        way = self.arguments[0]
        first = next(iter(params))
        for _ in job:
            params["w"] += 1
            params[first] += 1
        if way == "raises":
            raise RuntimeError("the sensor's file\nis gone")
        if way == "exits":
            sys.exit("enough")
        if way == "nan":
            params[first][...] = np.nan
        if way == "overflow":
            params[first] = np.full(params[first].shape, 1e300)
        if way == "shape":
            params[first] = np.zeros(7)
        if way == "complex":
            params[first] = params[first] + 1j
        if way == "name":
            params["more"] = np.zeros(1)
        if way == "steps":
            return Fitted(steps=job.steps + 1)
        if way == "metrics":
            return Fitted(metrics={str(i): 0.0 for i in range(17)})
        if way == "text":
            return Fitted(metrics={"x": "much"})  # type: ignore[dict-item]
        return None

    def risk(self, params: Any) -> float:
        worse = self.arguments[0] == "risk" and params["w"].ravel()[0] != 0
        return float("inf") if worse else super().risk(params)

    def rows(self) -> int:
        return 0 if self.arguments[0] == "rows" and self.fitted else 5

    fitted = False

    def can(self) -> Set[str]:
        self.fitted = True  # from now on, after hello
        return set()


class Silent(Quadratic):
    """Takes steps without a count."""

    def fit(self, params: Any, job: Job) -> None:
        params["w"] += 1


class Waiting(Quadratic):
    """Takes a step, and then waits for `stop`."""

    def fit(self, params: Any, job: Job) -> None:
        for step in job:
            params["w"] += 1
            if step == 2:
                job._stop.wait()


class Deaf(Quadratic):
    """Never answers."""

    def fit(self, params: Any, job: Job) -> None:
        threading.Event().wait()


class Slow(Quadratic):
    """Begins, and evaluates, when a file is there."""

    def await_file(self) -> None:
        while not os.path.exists("go"):
            threading.Event().wait(0.01)
        os.remove("go")

    def begin(self, start: Start) -> None:
        self.await_file()

    def evaluate(self, params: Any) -> Evaluated:
        self.await_file()
        return super().evaluate(params)


class Broken(Quadratic):
    """Cannot begin."""

    def begin(self, start: Start) -> None:
        raise FileNotFoundError("no /data/rows.csv")


class Empty(Quadratic):
    def rows(self) -> int:
        return 0


class Reads(Quadratic):
    """Reads what would be agentd's requests, and writes to the descriptor of standard output."""

    def fit(self, params: Any, job: Job) -> None:
        assert sys.stdin.read() == "" and os.read(0, 1) == b""
        os.write(1, b"straight to the descriptor\n")
        for _ in job:
            params["w"] += 1


made = Quadratic("made")
number = 7

if __name__ == "__main__":
    run(Quadratic("run"))
