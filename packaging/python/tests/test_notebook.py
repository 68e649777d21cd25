"""The notebook of the examples: it is stored without outputs, and runs."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest
from host import HERE

NOTEBOOK = HERE.parent / "examples" / "federation.ipynb"


def test_it_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert sum(cell["cell_type"] == "code" for cell in cells) > 3
    for cell in cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None, cell["id"]


def test_it_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    for module in "matplotlib", "ipykernel":
        pytest.importorskip(module, reason=f"{module} is not installed")
    if shutil.which("fedlab") is None:
        pytest.skip("fedlab is not in PATH")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = {cell["id"] for cell in book.cells if cell["cell_type"] == "code"
                for output in cell["outputs"] if "image/png" in output.get("data", {})}
    assert pictures == {"simulated", "federated", "predicted"}
