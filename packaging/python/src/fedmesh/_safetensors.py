"""Files in the format safetensors: named arrays behind a header in JSON.

Only numbers of the types F32 and F64 are read, and F32 is written: fedmesh has no others.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Dict, Mapping, NamedTuple, Tuple, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Arrays = Dict[str, Array]
Path = Union[str, "os.PathLike[str]"]

_METADATA = "__metadata__"
_MOST_HEADER = 16 << 20  # bytes; coordinator and agentd take no longer ones
_TYPES = {"F32": "<f4", "F64": "<f8"}


class FormatError(ValueError):
    """A file is not what it should be."""


class _Tensor(NamedTuple):
    dtype: str
    shape: Tuple[int, ...]
    begin: int  # bytes from the beginning of the data
    end: int


class Header(NamedTuple):
    """The head of a file: what is in it, and where."""

    tensors: Dict[str, _Tensor]
    metadata: Dict[str, str]
    length: int  # bytes before the data


def read_header(path: Path) -> Header:
    """Read and check the header: the tensors fill the file without holes."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        n = int.from_bytes(file.read(8), "little")
        if size < 8 or n > min(_MOST_HEADER, size - 8):
            raise FormatError(f"{path}: no safetensors file: its first 8 bytes are not the length of a header")
        text = file.read(n)
    try:
        entries = json.loads(text)
        metadata = entries.pop(_METADATA, {})
        tensors = {name: _entry(name, value) for name, value in entries.items()}
        if not all(isinstance(v, str) for v in metadata.values()):
            raise FormatError("its metadata are not all text")
    except FormatError as e:
        raise FormatError(f"{path}: {e}") from None
    except (ValueError, AttributeError, KeyError, TypeError):
        raise FormatError(f"{path}: no safetensors file: its header is not the JSON that the format wants") from None
    at = 0
    for name, t in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if t.begin != at:
            raise FormatError(f"{path}: tensor {name} begins at byte {t.begin} of the data, want {at}")
        at = t.end
    if size != 8 + n + at:
        raise FormatError(f"{path}: it has {size} bytes, and its header tells of {8 + n + at}: the file is damaged")
    return Header(tensors, metadata, 8 + n)


def _entry(name: str, value: Mapping[str, Any]) -> _Tensor:
    dtype, shape = value["dtype"], tuple(value["shape"])
    begin, end = value["data_offsets"]
    if dtype not in _TYPES:
        raise FormatError(f"tensor {name} has the type {dtype}, want F32 or F64")
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
        raise FormatError(f"tensor {name} has the shape {list(shape)} at {begin} to {end}, want whole numbers")
    width = np.dtype(_TYPES[dtype]).itemsize
    if end - begin != width * math.prod(shape):
        raise FormatError(f"tensor {name} has the shape {list(shape)} of {dtype} and {end - begin} bytes")
    return _Tensor(dtype, shape, begin, end)


class Mapped:
    """A file of F32 tensors in memory: what is written into its arrays is in the file, for other processes too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        head = read_header(path)
        for name, t in head.tensors.items():
            if t.dtype != "F32":
                raise FormatError(f"{path}: tensor {name} has the type {t.dtype}, want F32")
        size = max((t.end for t in head.tensors.values()), default=0)
        data = np.empty(0, np.uint8)
        if size:  # an empty file cannot be mapped
            data = np.memmap(path, np.uint8, "r+", head.length, (size,))
        # Plain arrays: each operation on a memmap takes longer.
        flat = np.asarray(data)
        self.arrays: Arrays = {
            name: flat[t.begin:t.end].view("<f4").reshape(t.shape) for name, t in sorted(head.tensors.items())}


def load(path: Path) -> Tuple[Dict[str, npt.NDArray[Any]], Dict[str, str]]:
    """Read a whole file: its arrays, in the order of their names, and its metadata."""
    head = read_header(path)
    with open(path, "rb") as file:
        file.seek(head.length)
        data = file.read()
    return {
        name: np.frombuffer(data[t.begin:t.end], _TYPES[t.dtype]).reshape(t.shape).copy()
        for name, t in sorted(head.tensors.items())
    }, head.metadata


def save(path: Path, arrays: Mapping[str, npt.ArrayLike], metadata: Mapping[str, str]) -> None:
    """Write arrays as F32, in the bytes in which coordinator and agentd write them.

    The file is there as a whole or not at all.
    """
    entries: Dict[str, Any] = {}
    if metadata:
        entries[_METADATA] = dict(sorted(metadata.items()))
    pieces, at = [], 0
    for name, value in sorted(arrays.items(), key=lambda item: item[0].encode()):
        if name in ("", _METADATA):
            raise ValueError(f"a tensor has the name {name!r}, which is empty or reserved")
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"tensor {name} has the type {array.dtype}, want real numbers")
        with np.errstate(over="ignore"):  # it is an infinity then
            array = np.array(array, "<f4", order="C")  # ascontiguousarray would make [1] of a scalar
        if not np.isfinite(array).all():
            raise ValueError(f"tensor {name} has a NaN, or a number that is infinite as a float32")
        pieces.append(array.tobytes())
        entries[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > _MOST_HEADER:
        raise ValueError(f"a header of {len(header)} bytes, want at most {_MOST_HEADER}: shorter or fewer names")
    new = f"{os.fspath(path)}.new"
    with open(new, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.writelines(pieces)
    os.replace(new, path)
