"""A model of your own, trained under agentd: docs/TRAINER.md in Python.

Write a class with `rows`, `risk` and `fit`, and name it in agentd.yaml:

    # plant.py
    class Plant(fedmesh.trainer.Trainer):
        def rows(self):
            return len(self.x)

        def risk(self, params):
            return ((self.x @ params["weight"] - self.y) ** 2).mean() / 2

        def fit(self, params, job):
            for step in job:
                pick = job.batch(step, len(self.x))
                error = self.x[pick] @ params["weight"] - self.y[pick]
                params["weight"] -= job.step_size * (error @ self.x[pick]) / len(error)

    # agentd.yaml
    trainers:
    - name: plant
      command: [fedmesh-trainer, "plant:Plant"]
      dir: /opt/plant

The command speaks with agentd, says that the program lives while `fit` works, and answers with the reason when it
raises. `fedmesh-trainer --initial FILE plant:Plant` writes what `parameters` returns: the model that the task begins
with.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import json
import math
import numbers
import os
import queue
import socket
import stat
import sys
import threading
import traceback
from dataclasses import dataclass, field
from typing import (Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple,
                    Union)

import numpy as np
import numpy.typing as npt

from fedmesh import _safetensors
from fedmesh._safetensors import Array, Arrays, FormatError

__all__ = ["Evaluated", "Fitted", "Job", "Prediction", "Start", "Trainer", "main", "run"]

VERSION = 1

_MOST_LINE = 65536  # bytes, with the \n
_MOST_WHY = 1000  # bytes of a reason
_MOST_NAME = 200  # bytes of a name
_MOST_METRICS = 16
_MOST_CLASSES = 1000
_BEAT = 1.0  # seconds between two frames `progress`, at most
_LINGER = 4.0  # seconds that are left for fit when agentd is gone

Number = Union[float, "np.floating[Any]", "np.integer[Any]"]
Rows = Union[slice, npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Start:
    """What agentd says first: names, for logs and for choosing data, and the shape of each tensor of the task."""

    federation: str
    device: str
    task: str
    shapes: Mapping[str, Tuple[int, ...]]

    def check(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise ValueError unless the tensors of the task are those of a model that the trainer has."""
        if self.shapes.keys() != arrays.keys():
            raise ValueError(f"the task's tensors are {', '.join(sorted(self.shapes))}, the trainer's "
                             f"{', '.join(sorted(arrays))}: fedmesh-trainer --initial writes the model to begin with")
        for name, array in arrays.items():
            if self.shapes[name] != array.shape:
                raise ValueError(f"the task's tensor {name} has the shape {list(self.shapes[name])}, the trainer's "
                                 f"{list(array.shape)}: have all devices the same columns and classes?")


@dataclass
class Fitted:
    """What `fit` may say of its work; it may also return nothing.

    metrics   at most 16 numbers, for people
    steps     how many it has taken, if it does not go through `for step in job`
    """

    metrics: Mapping[str, Number] = field(default_factory=dict)
    steps: Optional[int] = None


@dataclass
class Evaluated:
    """What `evaluate` says: the loss, a mean over `rows` rows that the trainer does not train on."""

    rows: Union[int, "np.integer[Any]"]
    risk: Number
    metrics: Mapping[str, Number] = field(default_factory=dict)


@dataclass
class Prediction:
    """What `predict` says of a row.

    value          the prediction; of classes the number of the likeliest
    time           of the row, with its zone
    probabilities  of classes
    residual       the label less the prediction, of classes 1 less the probability of the label's, once that is known
    """

    value: Number
    time: Optional[datetime.datetime] = None
    probabilities: Union[Sequence[Number], npt.NDArray[Any]] = ()
    residual: Optional[Number] = None


class Job:
    """One request to fit: which local steps to take, and how.

    round        for logs
    first, last  the steps to take; `for step in job` counts from first to last, and ends early after a `stop`
    block        how many steps the whole block has; it is one job unless devices mix
    step_size    the step size, with the device's weight in it
    batch_size   rows of a step; 0 means all
    seed         for what is drawn in this block: the same if the work is repeated
    proximal     the weight of (proximal/2)*|x - base|^2 in the loss (FedProx); 0 unless the trainer can "proximal"
    base         the parameters before step 1 of the block, if proximal is not 0; they cannot be changed
    seconds      how long agentd waits before it sends `stop`
    steps        how many steps are done
    """

    def __init__(self, frame: Mapping[str, Any], stop: threading.Event) -> None:
        self.round = str(frame.get("round", ""))
        self.first = _whole(frame, "first", 1)
        self.last = _whole(frame, "last", self.first)
        self.block = _whole(frame, "block", self.last)
        self.step_size = _number(frame, "step_size")
        self.batch_size = _whole(frame, "batch_size", 0)
        self.seed = _whole(frame, "seed", 0)
        self.proximal = _number(frame, "proximal", 0.0)
        self.seconds = _number(frame, "seconds", math.inf)
        self.base: Arrays = {}
        self.steps = 0
        self._counted = False
        self._stop = stop

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        self._counted = True
        for step in range(self.first, self.last + 1):
            if self.stopped():
                return
            yield step
            self.steps += 1

    def stopped(self) -> bool:
        """Tell whether agentd wants the answer now. It waits for `timeout` of agentd.yaml, and then kills."""
        return self._stop.is_set()

    def rng(self, step: int) -> np.random.Generator:
        """Return a generator for what a step draws: the same each time that the step is done."""
        return np.random.default_rng((self.seed, step))

    def batch(self, step: int, rows: int) -> Rows:
        """Return which of that many rows a step takes: `x[job.batch(step, len(x))]`.

        They are drawn evenly and with replacement, as agentd's own models draw them; all of them in their order if
        batch_size is 0.
        """
        if self.batch_size == 0:
            return slice(None)
        return self.rng(step).integers(rows, size=self.batch_size)


class Trainer:
    """What trains a model. Write `rows`, `risk` and `fit`, and the others if you need them.

    name is for people.
    """

    name = ""

    def begin(self, start: Start) -> None:
        """Prepare, once, before all others but `can`: read the data, say."""

    def can(self) -> Set[str]:
        """Say what the trainer knows beyond `fit`: "evaluate", "predict", "initial", "mixing" and "proximal".

        "evaluate" and "predict" are there if the class has the method, and "initial" if it has `parameters`. Add
        "mixing" if `fit` keeps nothing from one call to the next but its optimizer's state, which it resets when
        job.first is 1; and "proximal" if it takes job.proximal into its loss.
        """
        words = {"evaluate": Trainer.evaluate, "predict": Trainer.predict, "initial": Trainer.parameters}
        has = {"evaluate": type(self).evaluate, "predict": type(self).predict, "initial": type(self).parameters}
        return {word for word, method in words.items() if has[word] is not method}

    def rows(self) -> int:
        """Say how many rows it trains on, at least 1. It is asked before each answer, and when agentd looks for new
        rows."""
        raise NotImplementedError("write rows(): how many rows the trainer trains on")

    def risk(self, params: Arrays) -> Number:
        """Say the loss of these parameters over all its rows, a mean.

        It is asked before the first step of a block and after the last. The term of job.proximal is no part of it.
        """
        raise NotImplementedError("write risk(params): the loss over all rows that the trainer trains on")

    def fit(self, params: Arrays, job: Job) -> Optional[Fitted]:
        """Take the job's steps from these parameters: change the arrays, or put others of the same shape in the dict.

        They are copies: if `fit` raises, nothing has happened.
        """
        raise NotImplementedError("write fit(params, job): take the steps of the job")

    def evaluate(self, params: Arrays) -> Evaluated:
        """Say how the model does on rows that the trainer does not train on."""
        raise NotImplementedError("write evaluate(params), if it can")

    def predict(self, params: Arrays) -> Iterable[Prediction]:
        """Predict with the model, for each row that has come since the last call; of those from before the first one,
        the newest, say. A row whose label comes later may have a second prediction then, with its residual.

        agentd publishes them (predict.publish of agentd.yaml).
        """
        raise NotImplementedError("write predict(params), if it can")

    def parameters(self) -> Mapping[str, npt.ArrayLike]:
        """Return a first model: that of the task, of `fedmesh-trainer --initial`, which calls it without `begin`; and
        on a device the first values of those tensors that are its own (task.personal)."""
        raise NotImplementedError("write parameters(): the named arrays of a first model")


class _Failure(Exception):
    """A request cannot be answered, with the reason for agentd."""


class _Diverged(_Failure):
    """A number has left the finite ones."""


def _number(frame: Mapping[str, Any], key: str, default: Optional[float] = None) -> float:
    value = frame.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Failure(f"{frame.get('frame')}: {key} is {value!r}, want a number")
    return float(value)


def _whole(frame: Mapping[str, Any], key: str, least: int) -> int:
    value = _number(frame, key)
    if value < least or value != math.floor(value):
        raise _Failure(f"{frame.get('frame')}: {key} is {frame[key]!r}, want a whole number from {least} on")
    return int(frame[key])


def _finite(value: Any, what: str) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.floating, np.integer)):
        raise _Failure(f"{what} is {value!r}, want a number")
    if not math.isfinite(value):
        raise _Diverged(f"{what} is {float(value)}, which is not finite: have the steps diverged?")
    return float(value)


def _metrics(values: Mapping[str, Any]) -> Dict[str, float]:
    if len(values) > _MOST_METRICS:
        raise _Failure(f"{len(values)} metrics, want at most {_MOST_METRICS}")
    return {_cut(str(name), _MOST_NAME): _finite(value, f"the metric {name}") for name, value in values.items()}


def _copy(arrays: Mapping[str, Array]) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


def _checked(arrays: Arrays, params: Mapping[str, Any], method: str = "fit") -> Arrays:
    """Return what a method has made of the arrays of the file, as float32."""
    if params.keys() != arrays.keys():
        raise _Failure(f"after {method} the tensors are {', '.join(map(str, params))}; want {', '.join(arrays)}")
    new = {}
    for name, array in arrays.items():
        value = np.asarray(params[name])
        if value.shape != array.shape or value.dtype.kind not in "fiu":
            raise _Failure(f"after {method} the tensor {name} is {value.dtype} {list(value.shape)}; want float32 "
                           f"{list(array.shape)}")
        with np.errstate(over="ignore"):
            new[name] = value.astype(np.float32, copy=False)
        if not np.isfinite(new[name]).all():
            raise _Diverged(f"after {method} the tensor {name} has a NaN or an infinity: the steps have diverged, "
                            "take a smaller step size")
    return new


def _frozen(arrays: Mapping[str, Array]) -> Arrays:
    """Return copies that cannot be changed."""
    base = _copy(arrays)
    for array in base.values():
        array.flags.writeable = False
    return base


def _fitted(trainer: Trainer, arrays: Arrays, job: Job) -> Tuple[Arrays, int, Fitted]:
    """Have a trainer do a job; return what comes of the arrays, which stay as they are, and how many steps it took."""
    params = _copy(arrays)
    result = trainer.fit(params, job) or Fitted()
    steps = _steps(result, job)
    return _checked(arrays, params) if steps else arrays, steps, result


class _Request:
    """A request that is not answered yet."""

    def __init__(self, frame: Mapping[str, Any]) -> None:
        self.frame = frame
        self.kind = frame.get("frame")
        self.stop = threading.Event()
        self.job: Optional[Job] = None

    def answer(self, frame: Dict[str, Any]) -> Dict[str, Any]:
        return {**frame, "id": self.frame["id"]} if "id" in self.frame else frame


class _Session:
    """The conversation with agentd, over two streams.

    The main thread does the work. One thread reads, so that `stop` comes through; another says that the program
    lives. The lock keeps `progress` from coming after the answer.
    """

    def __init__(self, make: Callable[[], Trainer], requests: BinaryIO, answers: BinaryIO) -> None:
        self.make = make
        self.requests, self.answers = requests, answers
        self.lock = threading.Lock()
        self.open: Optional[_Request] = None
        self.todo: queue.SimpleQueue[Optional[_Request]] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.trainer: Optional[Trainer] = None
        self.file: Optional[_safetensors.Mapped] = None
        self.base: Arrays = {}
        self.pause = _BEAT
        self.pending: List[Prediction] = []  # for the next answers

    def serve(self) -> int:
        """Answer requests until there are no more, and return the program's exit status."""
        threading.Thread(target=self.read, daemon=True).start()
        try:
            while True:
                request = self.todo.get()
                if request is None:
                    return 0
                self.do(request)
                if self.trainer is None:
                    return 1  # a program that could not begin does not go on
        except BrokenPipeError:
            return 0  # agentd has gone
        finally:
            self.ended.set()

    # The thread that reads.

    def read(self) -> None:
        try:
            while True:
                line = self.requests.readline(_MOST_LINE + 1)
                if not line:
                    break
                self.take(line)
        except (OSError, ValueError, _Failure) as e:
            print(f"fedmesh: {e}", file=sys.stderr)
        self.todo.put(None)
        with self.lock:
            if self.open is not None:
                self.open.stop.set()
        if not self.ended.wait(_LINGER):
            os._exit(1)  # fit goes on, and there is nobody to tell

    def take(self, line: bytes) -> None:
        if len(line) > _MOST_LINE or not line.endswith(b"\n"):
            raise ValueError(f"a request of {len(line)} bytes and more, or without an end: {line[:80]!r}")
        frame = json.loads(line)
        if not isinstance(frame, dict):
            raise ValueError(f"a request that is no JSON object: {line[:80]!r}")
        if frame.get("frame") == "stop":
            with self.lock:
                if self.open is not None and self.open.frame.get("id") == frame.get("id"):
                    self.open.stop.set()
            return
        if frame.get("frame") == "hello":
            self.pause = min(_BEAT, _number(frame, "timeout") / 6)  # the first comes in the second pause
            threading.Thread(target=self.beat, daemon=True).start()
        request = _Request(frame)
        with self.lock:
            self.open = request
        self.todo.put(request)

    # The thread that says that the program lives.

    def beat(self) -> None:
        last: Optional[_Request] = None
        while not self.ended.wait(self.pause):
            with self.lock:
                request = self.open
                again, last = request is last, request
                if request is None or not again:
                    continue
                frame: Dict[str, Any] = {"frame": "progress"}
                if request.job is not None:
                    frame["steps"] = request.job.steps
                try:
                    self.send(request.answer(frame))
                except OSError:
                    return  # the thread that reads sees the end

    # The main thread.

    def do(self, request: _Request) -> None:
        leave: Optional[SystemExit] = None
        try:
            answer = self.answer(request)
        except _Failure as e:
            answer = _failed(str(e))
        except SystemExit as e:
            answer, leave = _failed(f"the trainer has called exit: {e}"), e
        except Exception as e:
            traceback.print_exc()
            answer = _failed(_why(e))
        with self.lock:
            self.open = None
            self.send(request.answer(answer))
        if leave is not None:
            raise leave

    def send(self, frame: Mapping[str, Any]) -> None:
        self.answers.write(json.dumps(frame, allow_nan=False, ensure_ascii=False).encode() + b"\n")
        self.answers.flush()

    def answer(self, request: _Request) -> Dict[str, Any]:
        if request.kind == "hello":
            return self.hello(request.frame)
        if self.trainer is None or self.file is None:
            raise _Failure(f"{request.kind} came before hello")
        if request.kind == "fit":
            return self.fit(request, self.trainer, self.file)
        if request.kind == "evaluate":
            return self.evaluate(request, self.trainer, self.file)
        if request.kind == "predict":
            return self.predict(self.trainer, self.file)
        if request.kind == "rows":
            return {"frame": "rows", "rows": _rows(self.trainer.rows())}
        if request.kind == "initial":
            params = {name: np.asarray(value) for name, value in self.trainer.parameters().items()}
            self.write(self.file, _checked(self.file.arrays, params, "parameters"))
            return {"frame": "initial"}
        raise _Failure(f"this program, of version {VERSION}, does not know the request {request.kind!r}")

    def hello(self, frame: Mapping[str, Any]) -> Dict[str, Any]:
        if self.trainer is not None:
            raise _Failure("a second hello")
        try:
            self.file = _safetensors.Mapped(str(frame.get("tensors")))
        except (FormatError, OSError) as e:
            raise _Failure(str(e)) from None
        trainer = self.make()
        trainer.begin(Start(str(frame.get("federation", "")), str(frame.get("device", "")), str(frame.get("task", "")),
                            {name: array.shape for name, array in self.file.arrays.items()}))
        name = _cut(trainer.name or type(trainer).__name__, _MOST_NAME)
        answer = {"frame": "hello", "version": VERSION, "name": name, "rows": _rows(trainer.rows()),
                  "can": sorted(trainer.can() | {"rows"})}
        self.trainer = trainer
        return answer

    def fit(self, request: _Request, trainer: Trainer, file: _safetensors.Mapped) -> Dict[str, Any]:
        job = Job(request.frame, request.stop)
        answer: Dict[str, Any] = {"frame": "fitted"}
        if job.first == 1:
            self.base = _frozen(file.arrays) if job.proximal else {}
            answer["risk_before"] = _finite(trainer.risk(_copy(file.arrays)), "risk_before")
        if job.proximal:
            if not self.base:
                raise _Failure(f"fit: it begins at step {job.first}, and this program has not seen step 1 of the block")
            job.base = self.base
        request.job = job
        new, answer["steps"], result = _fitted(trainer, file.arrays, job)
        answer["rows"] = _rows(trainer.rows())
        if job.last == job.block or answer["steps"] < len(job):
            answer["risk_after"] = _finite(trainer.risk(_copy(new)), "risk_after")
        if result.metrics:
            answer["metrics"] = _metrics(result.metrics)
        self.write(file, new)
        return answer

    @staticmethod
    def write(file: _safetensors.Mapped, new: Arrays) -> None:
        for name, array in file.arrays.items():
            array[...] = new[name]

    def evaluate(self, request: _Request, trainer: Trainer, file: _safetensors.Mapped) -> Dict[str, Any]:
        result = trainer.evaluate(_copy(file.arrays))
        if request.stop.is_set():
            raise _Failure("the evaluation was stopped")
        answer = {"frame": "evaluated", "rows": _rows(result.rows), "risk": _finite(result.risk, "the risk")}
        if result.metrics:
            answer["metrics"] = _metrics(result.metrics)
        return answer

    def predict(self, trainer: Trainer, file: _safetensors.Mapped) -> Dict[str, Any]:
        left = self.pending or list(trainer.predict(_copy(file.arrays)))
        self.pending = []  # if one of them is wrong, none of them is said
        some: List[Dict[str, Any]] = []
        size = 0
        for one in left:
            told = _prediction(one)
            size += len(json.dumps(told)) + 2
            if some and size > _MOST_LINE - 1000:
                break
            some.append(told)
        self.pending = left[len(some):]
        return {"frame": "predicted", "predictions": some, "more": bool(self.pending)}


def _prediction(of: Prediction) -> Dict[str, Any]:
    told: Dict[str, Any] = {"value": _finite(of.value, "a prediction")}
    if of.time is not None:
        if of.time.tzinfo is None:
            raise _Failure(f"the time of a prediction is {of.time}, want one with its zone")
        told["time"] = of.time.astimezone(datetime.timezone.utc).isoformat()
    if len(of.probabilities):
        told["probabilities"] = [_finite(p, "a probability") for p in of.probabilities]
        if len(told["probabilities"]) > _MOST_CLASSES:
            raise _Failure(f"a prediction has {len(of.probabilities)} probabilities, want at most {_MOST_CLASSES}")
    if of.residual is not None:
        told["residual"] = _finite(of.residual, "a residual")
    return told


def _steps(result: Fitted, job: Job) -> int:
    steps = result.steps
    if steps is None:
        if not job._counted:
            raise _Failure("fit has not said how many steps it took: go through `for step in job`, or return "
                           "Fitted(steps=...)")
        steps = job.steps
    if not 0 <= steps <= len(job):
        raise _Failure(f"fit says that it took {steps} steps of {len(job)}")
    return int(steps)


def _rows(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise _Failure(f"the trainer has {value!r} rows, want a whole number from 1 on")
    return int(value)


def _failed(why: str) -> Dict[str, Any]:
    return {"frame": "failed", "why": _cut(" ".join(why.split()), _MOST_WHY) or "no reason given"}


def _cut(text: str, most: int) -> str:
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def _why(e: BaseException) -> str:
    """Say what was raised and where, in a line."""
    frames = traceback.extract_tb(e.__traceback__)
    at = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(e).__name__}: {e}{at}"


def _serve(make: Callable[[], Trainer]) -> int:
    """Speak with agentd over what were standard input and output.

    From now on what the program prints goes to standard error, and what it reads is empty.
    """
    sys.stdout.flush()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return _Session(make, requests, answers).serve()


def _listen(make: Callable[[], Trainer], path: str) -> int:
    """Speak with agentd over a Unix socket: one connection after another, each with a trainer of its own."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)  # an earlier process has left it
    with socket.socket(socket.AF_UNIX) as line:
        before = os.umask(0o177)  # whoever connects may read and write what the trainer is asked for
        try:
            line.bind(path)
        finally:
            os.umask(before)
        line.listen()
        print(f"fedmesh: the trainer listens at {path}", file=sys.stderr, flush=True)
        while True:
            connection, _ = line.accept()
            with connection, connection.makefile("rb") as requests, connection.makefile("wb") as answers:
                try:
                    _Session(make, requests, answers).serve()
                except OSError as e:
                    print(f"fedmesh: {e}", file=sys.stderr)


def run(trainer: Trainer) -> None:
    """Speak with agentd over standard input and output until it ends the conversation.

    Call it as the last thing of a program that has printed nothing. The command fedmesh-trainer does so for you.
    """
    status = _serve(lambda: trainer)
    if status:
        sys.exit(status)


def _make(target: str, arguments: Sequence[str]) -> Trainer:
    """Make the trainer that MODULE:NAME names."""
    try:
        made = resolve(target)
        if callable(made):
            made = made(*arguments)
        elif arguments:
            raise _Failure(f"{target} is no class and no function: it takes no arguments")
    except (ImportError, AttributeError) as e:
        traceback.print_exc()
        raise _Failure(f"{target}: {_why(e)}") from None
    if not isinstance(made, Trainer):
        raise _Failure(f"{target} makes a {type(made).__name__}, want a fedmesh.trainer.Trainer; for a client of "
                       f"Flower the target is fedmesh.flower:Adapter, with {target} behind it")
    return made


def resolve(target: str) -> Any:
    """Return what MODULE:NAME names."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise _Failure(f"the target is {target!r}, want MODULE:NAME")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def main(argv: Optional[List[str]] = None) -> int:
    """Run the command fedmesh-trainer."""
    parser = argparse.ArgumentParser(
        prog="fedmesh-trainer", description="Train a model of your own under agentd (docs/TRAINER.md of fedmesh).")
    parser.add_argument("--initial", metavar="FILE", help="write the trainer's first model for the task, and end")
    parser.add_argument("--socket", metavar="PATH",
                        help="run by itself: wait for agentd at this Unix socket (trainers.socket of agentd.yaml), and "
                        "serve it for ever, one connection after another")
    parser.add_argument("target", metavar="MODULE:NAME",
                        help="a class or function that makes a fedmesh.trainer.Trainer; the module is looked for in "
                        "this folder, too")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="what it is called with, as text")
    options = parser.parse_args(argv)
    sys.path.insert(0, os.getcwd())
    if options.socket is not None and options.initial is None:
        return _listen(lambda: _make(options.target, options.arguments), options.socket)
    if options.initial is None:
        return _serve(lambda: _make(options.target, options.arguments))
    try:
        _safetensors.save(options.initial, _make(options.target, options.arguments).parameters(), {})
    except (_Failure, ValueError, OSError, NotImplementedError) as e:
        print(f"fedmesh-trainer: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Not main() of this module: under its other name the classes would be others than those of the package.
    from fedmesh.trainer import main as _main

    sys.exit(_main())
