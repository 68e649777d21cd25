"""A host that plays agentd from docs/TRAINER.md, as strict as agentd is."""

from __future__ import annotations

import json
import math
import os
import pathlib
import queue
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

import numpy as np

from fedmesh import _safetensors

HERE = pathlib.Path(__file__).parent
MOST_LINE = 65536
WAIT = 60.0  # seconds for an answer: a deadline for what has gone wrong, which nothing waits for

Frame = Dict[str, Any]


class Host:
    """A program, its file of parameters, and the conversation."""

    def __init__(self, folder: pathlib.Path, first: Dict[str, Any], *target: str,
                 command: Optional[List[str]] = None, env: Optional[Dict[str, str]] = None) -> None:
        self.path = folder / "tensors.safetensors"
        _safetensors.save(self.path, first, {})
        self.head = _safetensors.read_header(self.path)
        self.bytes = self.path.read_bytes()[:self.head.length]
        self.inode = self.path.stat().st_ino
        self.names = sorted(first)
        self.ids = 0
        self.needed: List[str] = []
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.progress: List[Frame] = []
        paths = [str(HERE), str(HERE.parent / "examples"), *sys.path]
        self.errors = open(folder / "stderr", "w+b")
        self.process = subprocess.Popen(
            command or [sys.executable, "-m", "fedmesh.trainer", *target],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TMPDIR": str(folder),
                 "PYTHONPATH": os.pathsep.join(p for p in paths if p), "OMP_NUM_THREADS": "1", **(env or {})})
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is not None:
            self.process.kill()
            print(self.stderr(), file=sys.stderr)
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")

    def stderr(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def end(self) -> int:
        """End the conversation, and return the exit status. The program has to end by itself, and to say no more."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if self.errors.closed:
            return int(self.process.returncode)
        self.process.stdin.close()
        status = self.process.wait(WAIT)
        assert self.lines.get(timeout=WAIT) == b"" or status != 0, "a line after the last answer"
        self.process.stdout.close()
        self.errors.close()
        return status

    # The parameters.

    def params(self) -> Dict[str, Any]:
        assert self.path.stat().st_ino == self.inode, "another file has its name"
        assert self.path.read_bytes()[:self.head.length] == self.bytes, "another header"
        arrays, _ = _safetensors.load(self.path)
        for name, array in arrays.items():
            assert np.isfinite(array).all(), name
        return arrays

    def put(self, params: Dict[str, Any]) -> None:
        with open(self.path, "r+b") as file:
            for name in self.names:
                file.seek(self.head.length + self.head.tensors[name].begin)
                file.write(np.asarray(params[name], "<f4").tobytes())

    # The frames.

    def send(self, frame: Frame) -> None:
        self.raw(json.dumps(frame).encode() + b"\n")

    def raw(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def receive(self) -> Frame:
        line = self.lines.get(timeout=WAIT)
        assert line, f"the program has ended:\n{self.stderr()}"
        assert len(line) <= MOST_LINE and line.endswith(b"\n"), line[:80]
        frame: Frame = json.loads(line.decode("utf-8"), parse_constant=lambda text: 1 / 0)
        assert isinstance(frame, dict), line[:80]
        return frame

    def ask(self, frame: str, **fields: Any) -> int:
        self.ids += 1
        self.send({"frame": frame, "id": self.ids, "of later versions": [1], **fields})
        return self.ids

    def answer(self, want: str, most_steps: int = 0) -> Frame:
        """Return the answer to the newest request, which is a valid one of this kind."""
        while True:
            got = self.receive()
            assert got.get("id") == self.ids, got
            if got["frame"] != "progress":
                break
            self.progress.append(got)
        assert got["frame"] == want, got
        if want == "failed":
            assert isinstance(got["why"], str) and 0 < len(got["why"].encode()) <= 1000, got
            return got
        if want == "initial":
            self.params()
            return got
        if want == "predicted":
            assert all(math.isfinite(one["value"]) for one in got["predictions"]) and type(got["more"]) is bool, got
            return got
        assert type(got["rows"]) is int and got["rows"] >= 1, got
        needed = {"evaluated": ["risk"], "rows": [],
                  "fitted": [*self.needed, *["risk_after"] * (got.get("steps", 0) < most_steps)]}
        for key in needed[want]:
            assert key in got, got
        for key in ("risk_before", "risk_after", "risk"):
            assert math.isfinite(got.get(key, 0)), got
        assert all(len(name.encode()) <= 200 for name in got.get("metrics", {})), got
        assert len(got.get("metrics", {})) <= 16 and all(map(math.isfinite, got.get("metrics", {}).values())), got
        if want == "fitted":
            assert type(got["steps"]) is int and 0 <= got["steps"] <= most_steps, got
        self.params()
        return got

    def hello(self, want: str = "hello", **fields: Any) -> Frame:
        self.send({"frame": "hello", "version": 1, "tensors": str(self.path), "federation": "plant", "device": "d1",
                   "task": "t", "timeout": 600, **fields})
        while True:
            got = self.receive()
            assert "id" not in got, got
            if got["frame"] != "progress":
                break
            self.progress.append(got)
        assert got["frame"] == want, f"{got}\n{self.stderr()}"
        if want == "hello":
            assert got["version"] == 1 and isinstance(got["name"], str) and len(got["name"].encode()) <= 200, got
            assert type(got["rows"]) is int and got["rows"] >= 1, got
            assert set(got["can"]) <= {"mixing", "proximal", "evaluate", "predict", "initial", "rows"}, got
        return got

    def ask_fit(self, first: int = 1, last: int = 1, step_size: float = 0.1, batch_size: int = 0,
                block: Optional[int] = None, **fields: Any) -> int:
        block = block or last
        self.needed = ["risk_before"] * (first == 1) + ["risk_after"] * (last == block)
        return self.ask("fit", **{"round": "3/1", "first": first, "last": last, "block": block, "step_size": step_size,
                                  "batch_size": batch_size, "seed": 5, "proximal": 0, "seconds": 60, **fields})

    def fit(self, first: int = 1, last: int = 1, want: str = "fitted", **fields: Any) -> Frame:
        self.ask_fit(first, last, **fields)
        return self.answer(want, last - first + 1)

    def evaluate(self, want: str = "evaluated") -> Frame:
        before = self.params()
        self.ask("evaluate")
        got = self.answer(want)
        after = self.params()
        assert all(np.array_equal(before[name], after[name]) for name in before), "evaluate changed the file"
        return got
