"""The rounds of a coordinator, as columns.

    rounds = fedmesh.history.read("/var/lib/coordinator/history.jsonl", kind="training")
    plt.plot(rounds["version"], rounds["risk"])

The columns have the names of `coordinator history export`, and are arrays of one length:

    time                                      datetime64 in microseconds, UTC; NaT where the line has none
    run, round, attempt, version              whole numbers; 0 where the line has none
    kind, outcome, reason, ended              text; "" where the line has none
    risk, held_out_risk, r2, accuracy,        numbers; NaN where nothing was measured
    seconds, selected, accepted
    evaluated_agents, evaluated_risk, ...     numbers, in lines of the kind "evaluation"

docs/API.md says what they mean.
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from fedmesh._safetensors import Path

__all__ = ["read"]

_WHOLE = ("run", "round", "attempt", "version")
_TEXT = ("kind", "outcome", "reason", "ended")
_ROUND = ("risk", "held_out_risk", "r2", "accuracy", "seconds", "selected", "accepted")
_EVALUATION: Dict[str, Tuple[str, ...]] = {
    "evaluated_agents": ("agents",), "evaluated_risk": ("risk",), "evaluated_r2": ("r2",),
    "evaluated_accuracy": ("accuracy",), "evaluated_f1": ("f1",),
    "evaluated_worst_risk": ("agent_risk", "worst"), "evaluated_worst_accuracy": ("agent_accuracy", "worst"),
}


def read(path: Path, kind: Optional[str] = None, run: Optional[int] = None) -> Dict[str, npt.NDArray[Any]]:
    """Read history.jsonl, the oldest line first; the coordinator may be running.

    kind   only lines of that kind: "statistics", "training" or "evaluation"
    run    only lines of that run
    """
    lines = [line for line in _lines(path)
             if (kind is None or line["kind"] == kind) and (run is None or line.get("run", 0) == run)]
    columns: Dict[str, npt.NDArray[Any]] = {
        "time": np.array([_time(line.get("time")) for line in lines], "datetime64[us]")}
    for name in _WHOLE:
        columns[name] = np.array([line.get(name, 0) for line in lines], np.int64)
    for name in _TEXT:
        columns[name] = np.array([line.get(name, "") for line in lines], np.str_)
    for name in _ROUND:
        columns[name] = _floats([() if "evaluation" in line else (name,) for line in lines], lines)
    for name, where in _EVALUATION.items():
        columns[name] = _floats([("evaluation", *where)] * len(lines), lines)
    return columns


def _lines(path: Path) -> List[Dict[str, Any]]:
    with open(path, "rb") as file:
        text = file.read()
    lines = []
    for n, line in enumerate(text.split(b"\n")[:-1], 1):  # what has no end yet is being written
        try:
            entry = json.loads(line)
            lines.append({"kind": entry["kind"], **entry})
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}:{n}: no line of a history: remove it, or read a copy without it") from None
    return lines


def _time(text: Optional[str]) -> np.datetime64:
    if text is None:
        return np.datetime64("NaT", "us")
    whole, _, fraction = text.rstrip("Z").partition(".")
    at = datetime.datetime.fromisoformat(whole)  # up to Python 3.10 it takes no more than this
    return np.datetime64(at.replace(microsecond=int(fraction[:6].ljust(6, "0"))), "us")


def _floats(where: List[Tuple[str, ...]], lines: List[Dict[str, Any]]) -> npt.NDArray[np.float64]:
    column = np.full(len(lines), np.nan)
    for i, (path, line) in enumerate(zip(where, lines)):
        value: Any = line if path else None
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, (int, float)):
            column[i] = value
    return column
