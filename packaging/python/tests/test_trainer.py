"""fedmesh.trainer against a host that plays agentd."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import sys
from typing import Any, Dict

import numpy as np
import pytest
from host import HERE, Host

from fedmesh import _safetensors

FIRST: Dict[str, Any] = {"w": np.arange(6.0).reshape(2, 3), "b": 0.5, "none": np.zeros((0, 4))}


def test_the_whole_page(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:Quadratic", "one", "two") as host:
        assert host.hello() == {"frame": "hello", "version": 1, "name": "a quadratic", "rows": 5,
                                "can": ["evaluate", "initial", "mixing", "proximal", "rows"]}
        got = host.fit(1, 3, step_size=0.5)
        want = 1 + 0.125 * (np.arange(6.0) - 1)
        assert got["steps"] == 3 and got["rows"] == 5 and got["metrics"] == {"steps": 3}
        assert got["risk_before"] == pytest.approx(15.625) and got["risk_after"] == pytest.approx(15.625 / 64)
        assert np.allclose(host.params()["w"].ravel(), want) and host.params()["b"] == 1 - 0.0625
        got = host.evaluate()
        assert (got["rows"], got["metrics"]) == (2, {"accuracy": 0.5}) and got["risk"] == pytest.approx(15.625 / 64)
        host.ask("rows")
        assert host.answer("rows")["rows"] == 5
    assert host.process.returncode == 0
    text = (tmp_path / "stderr").read_text()
    assert "printed by fit" in text and "imported" in text


def test_the_values_to_begin_with(tmp_path: pathlib.Path) -> None:
    """The values that the trainer begins with are put into the file; others than the task's tensors are refused."""
    with Host(tmp_path, {"w": np.zeros((2, 3)), "b": 9.0}, "subjects:Begins") as host:
        host.hello()
        host.ask("initial")
        host.answer("initial")
        assert np.array_equal(host.params()["w"], np.arange(6.0).reshape(2, 3)) and host.params()["b"] == 0.5
    with Host(tmp_path, {"w": np.zeros(3), "b": 9.0}, "subjects:Begins") as host:
        host.hello()
        host.ask("initial")
        assert "after parameters the tensor w is float64 [2, 3]; want float32 [3]" in host.answer("failed")["why"]


def test_predict(tmp_path: pathlib.Path) -> None:
    """Predictions come in as many answers as lines hold; one that is wrong is told, and those after it go on."""
    with Host(tmp_path, {"x": [3.0]}, "subjects:Foresees") as host:
        assert "predict" in host.hello()["can"]
        values, more = [], True
        while more:
            host.ask("predict")
            got = host.answer("predicted")
            values += [one["value"] for one in got["predictions"]]
            labels = {(one["time"], one["residual"]) for one in got["predictions"]}
            assert labels == {("2026-03-01T06:00:00+00:00", 0.5)}
            more = got["more"]
        assert values == list(range(3000))
        host.ask("predict")
        assert host.answer("predicted")["predictions"] == [{"value": 3.0, "probabilities": [0.25, 0.75]}]
        for why in ("with its zone", "a prediction is inf"):
            host.ask("predict")
            assert why in host.answer("failed")["why"]
        host.ask("predict")
        assert host.answer("predicted") == {"frame": "predicted", "id": host.ids, "predictions": [], "more": False}


def test_socket(tmp_path: pathlib.Path) -> None:
    """A trainer that runs by itself serves one connection after another; it takes the place of a socket that is left."""
    path, file = tmp_path / "s", tmp_path / "tensors.safetensors"
    _safetensors.save(file, {"x": [3.0]}, {})
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with subprocess.Popen([sys.executable, "-m", "fedmesh.trainer", "--socket", str(path), "subjects:Quadratic"],
                          cwd=HERE, env={"PYTHONPATH": ":".join([str(HERE), *sys.path])},
                          stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while f"listens at {path}".encode() not in (said := process.stderr.readline()):
            assert said, "it has ended"
        assert path.stat().st_mode & 0o777 == 0o600
        hello = {"frame": "hello", "version": 1, "tensors": str(file), "federation": "plant", "device": "d1",
                 "task": "t", "timeout": 600}
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as line, line.makefile("rb") as answers:
                line.connect(str(path))
                line.sendall(json.dumps(hello).encode() + b"\n")
                assert json.loads(answers.readline())["name"] == "a quadratic"
                line.shutdown(socket.SHUT_WR)
                assert answers.readline() == b""
        process.terminate()


def test_mixing(tmp_path: pathlib.Path) -> None:
    """agentd changes the file between two parts of a block; base is what stood there before step 1."""
    with Host(tmp_path, {"x": [3.0]}, "subjects:Quadratic") as host:
        host.hello()
        for block in range(2):
            host.put({"x": [3.0 + block]})
            for step in (1, 2, 3):
                x = host.params()["x"][0]
                got = host.fit(step, step, proximal=2, block=3)
                assert ("risk_before" in got, "risk_after" in got) == (step == 1, step == 3)
                want = x - 0.1 * (x - 1 + 2 * (x - 3 - block))
                assert host.params()["x"][0] == pytest.approx(want, rel=1e-6)
                host.put({"x": [want + step]})
    with Host(tmp_path, {"x": [3.0]}, "subjects:Quadratic") as host:
        host.hello()
        assert "not seen step 1" in host.fit(2, 2, "failed", proximal=2)["why"]
        assert "risk_before" not in host.fit(2, 2)
        host.fit(1, 1, proximal=2)


def test_draws(tmp_path: pathlib.Path) -> None:
    """A step draws the same, however the block is cut, and other steps and seeds draw others."""
    seen = []
    for cuts in ([(1, 4)], [(1, 1), (2, 4)]):
        with Host(tmp_path, {"x": np.zeros(4)}, "subjects:Draws") as host:
            assert host.hello()["can"] == ["rows"]
            for first, last in cuts:
                host.fit(first, last, batch_size=20)
            seen.append(host.params()["x"])
            if len(cuts) == 1:
                host.fit(1, 4, batch_size=20, seed=2**53 - 1)
                other = host.params()["x"]
                host.fit(1, 1, batch_size=0)
                assert abs(host.params()["x"][0] - 499500) < 10
    assert np.array_equal(seen[0], seen[1])
    assert len({*seen[0], *other}) == 8


def test_stop(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:Waiting") as host:
        host.hello()
        host.send({"frame": "stop", "id": 1})  # it has crossed an answer: there is no such request
        for round in range(2):
            request = host.ask_fit(1, 9, block=20)  # risk_after is needed after a stop, too
            host.send({"frame": "stop", "id": request - 1})
            before = len(host.progress)
            while len(host.progress) == before:  # a stop for another request does not end it
                got = host.receive()
                assert got["frame"] == "progress" and got["id"] == request, got
                host.progress.append(got)
            host.send({"frame": "stop", "id": request})
            assert host.answer("fitted", 9)["steps"] == 2
            assert host.params()["w"][0][0] == 2 * (round + 1)
        assert {"frame": "progress", "id": 1, "steps": 1} in host.progress


def test_stop_before_the_first_step(tmp_path: pathlib.Path) -> None:
    """Both are on their way when the program begins to read. No step is taken, and the file stays as it is."""
    with Host(tmp_path, FIRST, "subjects:Waiting") as host:
        host.hello()
        host.raw(b'{"frame":"fit","id":1,"round":"1","first":1,"last":5,"block":5,"step_size":1,"batch_size":0,'
                 b'"seed":1,"proximal":0,"seconds":9}\n{"frame":"stop","id":1}\n')
        host.ids, host.needed = 1, ["risk_before", "risk_after"]
        got = host.answer("fitted", 5)
        assert got["steps"] <= 2 and host.params()["w"][0][0] == got["steps"]


def test_slow_beginnings(tmp_path: pathlib.Path) -> None:
    """While it prepares, a program says that it lives; an evaluation that is stopped has no answer but failed."""
    with Host(tmp_path, FIRST, "subjects:Slow") as host:
        host.send({"frame": "hello", "version": 1, "tensors": str(host.path), "federation": "plant", "device": "d1",
                   "task": "t", "timeout": 0.3})
        for _ in range(3):
            assert host.receive() == {"frame": "progress"}
        (tmp_path / "go").touch()
        while (got := host.receive())["frame"] == "progress":
            pass
        assert got["frame"] == "hello"
        (tmp_path / "go").touch()
        host.evaluate()
        host.ask("evaluate")
        host.send({"frame": "stop", "id": host.ids})
        assert host.receive() == {"frame": "progress", "id": host.ids}
        (tmp_path / "go").touch()
        assert "stopped" in host.answer("failed")["why"]


WAYS = {
    "raises": "RuntimeError: the sensor's file is gone (subjects.py:", "nan": "b has a NaN",
    "overflow": "b has a NaN or an infinity", "shape": "b is float64 [7]; want float32 []",
    "complex": "b is complex", "name": "more; want b, none, w", "steps": "took 4 steps of 3",
    "risk": "risk_after is inf, which is not finite", "metrics": "17 metrics", "text": "'much', want a number",
    "rows": "0 rows",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_goes_wrong(way: str, tmp_path: pathlib.Path) -> None:
    """The reason comes, the file stays as it is, and the program goes on."""
    with Host(tmp_path, FIRST, "subjects:Bad", way) as host:
        host.hello()
        for _ in range(2):
            before = host.path.read_bytes()
            assert WAYS[way] in host.fit(1, 3, "failed")["why"]
            assert host.path.read_bytes() == before


def test_exit(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:Bad", "exits") as host:
        host.hello()
        assert "exit: enough" in host.fit(1, 3, "failed")["why"]
        assert host.process.wait(60) == 1


def test_no_count(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:Silent") as host:
        host.hello()
        assert "how many steps" in host.fit(1, 3, "failed")["why"]


BEGINNINGS = {
    "subjects:Broken": "FileNotFoundError: no /data/rows.csv (subjects.py:", "subjects:Empty": "0 rows",
    "subjects:Nothing": "has no attribute 'Nothing'", "nowhere:Nothing": "No module named 'nowhere'",
    "subjects": "want MODULE:NAME", "subjects:number": "makes a int, want a fedmesh.trainer.Trainer",
}


@pytest.mark.parametrize("target", BEGINNINGS)
def test_what_cannot_begin(target: str, tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, target) as host:
        assert BEGINNINGS[target] in host.hello("failed")["why"]
        assert host.process.wait(60) == 1


def test_arguments_of_what_is_made(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:made", "more") as host:
        assert "takes no arguments" in host.hello("failed")["why"]
    with Host(tmp_path, FIRST, "subjects:made") as host:
        assert host.hello()["rows"] == 4


def test_bad_files(tmp_path: pathlib.Path) -> None:
    good = tmp_path / "good.safetensors"
    _safetensors.save(good, {"x": [1.0]}, {})
    bad = tmp_path / "bad.safetensors"
    for data, says in ((b"", "no safetensors"), (good.read_bytes() + b"1", "damaged"),
                       (good.read_bytes().replace(b"F32", b"F16"), "has the type F16"),
                       (good.read_bytes().replace(b"[0,4]", b"[4,8]"), "begins at byte 4"),
                       (good.read_bytes().replace(b'"shape":[1]', b'"shape":[2]'), "and 4 bytes"),
                       (good.read_bytes().replace(b"{", b"[", 1), "no safetensors file")):
        bad.write_bytes(data)
        with pytest.raises(_safetensors.FormatError, match=says):
            _safetensors.load(bad)
        with Host(tmp_path, FIRST, "subjects:Quadratic") as host:
            assert says in host.hello("failed", tensors=str(bad))["why"]


def test_bad_requests(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:Quadratic") as host:
        host.hello()
        assert "first is 0" in host.fit(0, 3, "failed")["why"]
        assert "last is 1" in host.fit(2, 1, "failed")["why"]
        assert "step_size is None" in host.fit(1, 1, "failed", step_size=None)["why"]
        host.ask("explain")
        assert "'explain'" in host.answer("failed")["why"]
        host.fit(1, 1)
    with Host(tmp_path, FIRST, "subjects:Silent") as host:
        host.ask_fit(1, 1)
        assert "before hello" in host.answer("failed")["why"]


@pytest.mark.parametrize("line", [b"[]\n", b"no json\n", b" " * 65536 + b"\n", b'{"frame":'])
def test_requests_that_are_none(line: bytes, tmp_path: pathlib.Path) -> None:
    """A conversation that makes no sense ends."""
    with Host(tmp_path, FIRST, "subjects:Quadratic") as host:
        host.hello()
        host.raw(line)
        assert host.end() == 0


def test_agentd_ends(tmp_path: pathlib.Path) -> None:
    """What goes on working when agentd is gone is ended."""
    with Host(tmp_path, FIRST, "subjects:Deaf") as host:
        host.hello()
        host.ask_fit(1, 1)
        assert host.receive()["frame"] == "progress"
        assert host.end() == 1


def test_descriptors(tmp_path: pathlib.Path) -> None:
    with Host(tmp_path, FIRST, "subjects:Reads") as host:
        host.hello()
        host.fit(1, 2)
        assert "straight to the descriptor" in host.stderr()


def test_run(tmp_path: pathlib.Path) -> None:
    """A program that calls run() itself; what the module prints comes before that, and must not be."""
    program = (HERE / "subjects.py").read_text().replace('print("what', '# ("what')
    (tmp_path / "program.py").write_text(program)
    with Host(tmp_path, FIRST, command=[sys.executable, "program.py"]) as host:
        assert host.hello()["rows"] == 4
        host.fit(1, 2)


def test_initial(tmp_path: pathlib.Path) -> None:
    def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-m", "fedmesh.trainer", "--initial", "i.safetensors", *arguments],
                              cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              env={"PYTHONPATH": ":".join([str(HERE), *sys.path])})

    done = command("subjects:Quadratic")
    assert done.returncode == 0, done.stderr
    arrays, metadata = _safetensors.load(tmp_path / "i.safetensors")
    assert list(arrays) == ["b", "w"] and arrays["w"].shape == (2, 3) and arrays["b"] == 0.5 and metadata == {}
    for target, says in (("subjects:Draws", "write parameters()"), ("subjects:Nothing", "no attribute 'Nothing'")):
        done = command(target)
        assert done.returncode == 1 and says in done.stderr
