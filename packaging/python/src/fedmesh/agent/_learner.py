"""What an agent computes (section 8 of docs/PROTOCOL.md): by a trainer of the user's, or one of linear models."""

from __future__ import annotations

import csv
import hashlib
import math
import queue
import threading
import time
import traceback
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Tuple, TypeVar

import numpy as np
import numpy.typing as npt

from fedmesh import trainer as t
from fedmesh._safetensors import Array, Arrays
from fedmesh.agent import _wire as w

Make = Callable[[], t.Trainer]
Result = TypeVar("Result")


class Declined(Exception):
    """Why the agent cannot do what it is asked: a reason of section 7.9, and words for people."""

    def __init__(self, reason: int, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def apart(work: Callable[[], Result]) -> Generator[bool, None, Result]:
    """Yields until the work is done on a thread of its own, and returns what it returns, or raises what it raises."""
    done: queue.SimpleQueue[Tuple[Any, Optional[BaseException]]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:
            done.put((None, error))
    threading.Thread(target=run, daemon=True).start()
    while done.empty():
        yield False
    result, error = done.get()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def refusal(task: Any) -> Optional[str]:
    """Says why this package can do a task with no trainer; None if it may."""
    more = task.sections
    constant = task.step_size > 0 and task.strong_convexity == task.gamma == 0
    decaying = task.step_size == 0 and task.strong_convexity > 0 and task.gamma > 0
    sound = (
        (constant or decaying) and task.ridge >= 0 and task.batch_size <= 65536 and 0 <= task.response_prob <= 1
        and 1 <= task.min_steps <= task.max_steps and task.budget >= 1)
    if unknown := w.unsupported(more):
        return f"the task has what this package does not know: {', '.join(unknown)}"
    if more.mixing:
        return "devices of the task mix with their neighbours"
    if more.codec:
        return "updates of the task are packed (task.codec)"
    if task.exchange != 1:
        return "the task wants gradients (task.exchange)"
    return None if sound else "the task's numbers make no sense"


def linear_refusal(task: Any) -> Optional[str]:
    """Says why a task that no trainer of the user's is for is none for Linear; None if it is."""
    columns, more = task.features + [task.target], task.sections
    s = more.standardization
    if task.hidden or (task.outputs, task.risk) != (1, 1):
        return "without a trainer this package trains linear models with the squared risk only"
    if more.inputs:
        return "the task's rows are made of readings (task.inputs), and those here are the lines of a file"
    for name in "frozen", "huber", "proximal":
        if getattr(more, name) is not None:
            return f"the task has task.{name}"
    sound = (
        len(columns) > 1 and all(columns) and len(set(columns)) == len(columns)
        and (more.gradient_noise is None or more.gradient_noise.variance > 0)
        and (s is None or len(s.mean) == len(s.scale) == len(columns) and min(s.scale) > 0 and s.clip >= 0))
    return None if sound else "the task's columns or numbers make no sense"


class Linear(t.Trainer):
    """A linear model with the squared risk, on the lines of a CSV file with a line of names."""

    def __init__(self, task: Any, path: str) -> None:
        self.task = task
        columns = task.features + [task.target]
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                rows = [[float(row[column]) for column in columns] for row in csv.DictReader(file)]
        except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
            raise Declined(w.BAD_DATA, f"{path}: {type(error).__name__}: {error}") from None
        self.raw = np.array(rows).reshape(len(rows), len(columns))
        if not np.isfinite(self.raw).all():
            raise Declined(w.BAD_DATA, f"{path}: a number is not finite")
        table, s = self.raw, task.sections.standardization
        self.unit = 1.0  # of risks, which are in the units of the data
        if s:
            table = (table - s.mean) / s.scale
            self.unit = s.scale[-1] ** 2
        self.x, self.y = table[:, :-1], table[:, -1]
        if s and s.clip > 0:
            self.x = self.x.clip(-s.clip, s.clip)

    def rows(self) -> int:
        return len(self.raw)

    def tensors(self) -> List[w.Tensor]:
        weight: w.Tensor = ("layer0.weight", 1, [1, self.x.shape[1]])
        return [weight, ("layer0.bias", 1, [1])] if self.task.bias else [weight]

    def statistics(self) -> Tuple[bytes, bytes]:
        """The vector of a statistics round, and the hash of its schema."""
        mean = self.raw.mean(axis=0)
        vector = np.concatenate([[len(self.raw)], mean, ((self.raw - mean) ** 2).sum(axis=0)])
        m = self.raw.shape[1]
        schema = w.schema_hash(("count", 2, [1]), ("mean", 2, [m]), ("squares", 2, [m]))
        return vector.astype("<f8").tobytes(), schema

    def error(self, params: Mapping[str, Any], rows: t.Rows) -> npt.NDArray[Any]:
        out = self.x[rows] @ params["layer0.weight"][0].astype(float) - self.y[rows]
        return np.asarray(out + params["layer0.bias"] if self.task.bias else out)

    def risk(self, params: Arrays) -> t.Number:
        ridge = sum(float((a.astype(float) ** 2).sum()) for a in params.values())
        return float(self.unit * ((self.error(params, slice(None)) ** 2).mean() + self.task.ridge * ridge) / 2)

    def fit(self, params: Arrays, job: t.Job) -> None:
        task = self.task
        for step in job:
            draw = job.rng(step)
            rows: t.Rows = slice(None)
            if task.batch_size:
                rows = draw.integers(len(self.x), size=task.batch_size)
            if draw.random() >= (task.response_prob or 1):
                continue
            error = self.error(params, rows)
            gradient = {"layer0.weight": (error @ self.x[rows])[None] / len(error), "layer0.bias": error.mean()}
            for name, array in params.items():
                g = gradient[name] + task.ridge * array + self.noise(draw, array.shape)
                params[name] = (array - job.step_size * g / (task.response_prob or 1)).astype(np.float32)

    def noise(self, draw: np.random.Generator, shape: Tuple[int, ...]) -> Any:
        noise = self.task.sections.gradient_noise
        if not noise:
            return 0.0
        deviation = math.sqrt(noise.variance)
        return draw.normal(0, deviation, shape) if noise.law == 1 else draw.laplace(0, deviation / math.sqrt(2), shape)


class Learner:
    """A task, and the trainer that fits it here. Its methods are called on one thread at a time."""

    def __init__(self, blob: bytes, data: Optional[str], trainers: Mapping[str, Make], federation: str,
                 device: str) -> None:
        try:
            self.task = task = w.decode(w.TASK, blob)
        except w.Malformed as error:
            raise Declined(w.UNSUPPORTED, f"the task cannot be read: {error}") from None
        if why := refusal(task):
            raise Declined(w.UNSUPPORTED, why)
        self.linear: Optional[Linear] = None
        if external := task.sections.external:
            self.tensors: List[w.Tensor] = [(tensor.name, tensor.element, tensor.shape) for tensor in external.tensors]
            self.trainer = self.begin(trainers, federation, device)
            self.rows = self.count()
        else:
            if why := linear_refusal(task):
                raise Declined(w.UNSUPPORTED, why)
            if data is None:
                raise Declined(w.BAD_DATA, "there are no data for tasks that no trainer is for")
            self.trainer = self.linear = Linear(task, data)
            self.tensors, self.rows = self.linear.tensors(), self.linear.rows()
        if self.rows < max(1, task.min_samples):
            raise Declined(w.TOO_FEW_ROWS, f"{self.rows} rows, and the task wants {max(1, task.min_samples)}")
        self.schemas = {w.TRAINING: w.schema_hash(*self.tensors)}
        if self.linear:
            self.schemas[w.STATISTICS] = self.linear.statistics()[1]
        self.busy = threading.Lock()

    def begin(self, trainers: Mapping[str, Make], federation: str, device: str) -> t.Trainer:
        name = self.task.sections.external.trainer
        if name not in trainers:
            raise Declined(w.UNSUPPORTED, f"the task wants the trainer {name!r}, which is not here")
        try:
            made = trainers[name]()
            made.begin(t.Start(federation, device, self.task.name, {
                name: tuple(shape) for name, _, shape in self.tensors}))
            able = made.can()
        except Exception as error:
            raise self.failed(error) from None
        if self.task.sections.proximal and "proximal" not in able:
            raise Declined(w.UNSUPPORTED, f"the task has task.proximal, which the trainer {name!r} does not know")
        return made

    def failed(self, error: Exception) -> Declined:
        if isinstance(error, Declined):
            return error
        if isinstance(error, t._Failure):
            return Declined(w.DIVERGED if isinstance(error, t._Diverged) else w.BAD_DATA, str(error))
        traceback.print_exception(type(error), error, error.__traceback__)
        return Declined(w.BAD_DATA, t._why(error))

    def count(self) -> int:
        try:
            return t._rows(self.trainer.rows())
        except Exception as error:
            raise self.failed(error) from None

    def steps(self, step_time: float) -> int:
        if not step_time:
            return int(self.task.min_steps)
        return int(max(self.task.min_steps, min(self.task.max_steps, int(self.task.budget / 1000 / step_time))))

    def split(self, base: bytes) -> Arrays:
        flat, arrays, at = np.frombuffer(base, "<f4"), {}, 0
        for name, _, shape in self.tensors:
            arrays[name] = flat[at:at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)
        return arrays

    def train(self, base: bytes, offset: int, weight: float, step_time: float, draw: str,
              stop: threading.Event) -> Tuple[bytes, Dict[str, Any]]:
        """Takes the local steps of a round; returns Δ, and what else the update says.

        draw is the text that seeds what is drawn. After a stop it returns what it has.
        """
        if len(base) != 4 * sum(math.prod(shape) for _, _, shape in self.tensors):
            raise Declined(w.UNSUPPORTED, "the model has another length than the task's tensors")
        with self.busy, np.errstate(all="ignore"):  # a round that was given up may still take its last step
            try:
                return self.block(self.split(base), offset, weight, step_time, draw, stop)
            except Exception as error:
                raise self.failed(error) from None

    def block(self, base: Arrays, offset: int, weight: float, step_time: float, draw: str,
              stop: threading.Event) -> Tuple[bytes, Dict[str, Any]]:
        task, steps = self.task, self.steps(step_time)
        share = weight / (steps if task.normalize else 1)
        before = t._finite(self.trainer.risk(t._copy(base)), "risk_before")
        frame = dict(frame="fit", round=draw, block=steps, batch_size=task.batch_size,
                     seed=int.from_bytes(hashlib.sha256(draw.encode()).digest()[:8], "little") >> 11,
                     proximal=task.sections.proximal or 0.0)
        now, taken, began = base, 0, time.monotonic()
        stride = 1 if self.linear else steps  # a trainer has one step size for a block, as under agentd
        for first in range(1, steps + 1, stride):
            mu = task.step_size or 2 / (task.strong_convexity * (task.gamma + offset + first))
            job = t.Job({**frame, "first": first, "last": first + stride - 1, "step_size": mu * share}, stop)
            if job.proximal:
                job.base = t._frozen(base)
            now, count, _ = t._fitted(self.trainer, now, job)
            taken += count
            if count < len(job):
                break
        spent = time.monotonic() - began
        if not taken:
            raise Declined(w.NO_TIME, "not one step was taken in time")
        after = t._finite(self.trainer.risk(t._copy(now)), "risk_after")
        self.rows = self.count()
        delta = [((now[name] - base[name]) * np.float32(steps / taken)).ravel() for name, _, _ in self.tensors]
        vector: Array = np.concatenate(delta).astype("<f4")
        if not np.isfinite(vector).all():
            raise Declined(w.DIVERGED, "the update is too large for float32")
        return vector.tobytes(), dict(local_steps=taken, risk_before=before, risk_after=after, step_time=spent / taken)
