"""A convolutional network of PyTorch on Fashion-MNIST, from Debian's package dataset-fashion-mnist.

    trainers:
    - name: fashion
      command: [fedmesh-trainer, "fashion:make", "0", "10"]
      dir: /opt/fashion
      env: [OMP_NUM_THREADS=1]  # where several programs share few cores, their threads would wait for each other
      memory: 2GiB

The arguments choose part 0 of 10 of the training images; a third one is how many of them to take at most. A tenth of
the test images is held out, another at each device.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import fedmesh.torch

FOLDER = "/usr/share/datasets/fashion-mnist"


def images(name: str, part: int, parts: int, most: int) -> Any:
    with gzip.open(f"{FOLDER}/{name}-images-idx3-ubyte.gz") as file:
        x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(f"{FOLDER}/{name}-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)
    x, y = x[part::parts][:most], y[part::parts][:most]
    return TensorDataset(torch.from_numpy(x / np.float32(255)), torch.from_numpy(y.astype(np.int64)))


def network() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))


def make(part: str = "0", parts: str = "10", most: str = "60000") -> fedmesh.torch.Torch:
    return fedmesh.torch.Torch(network(), nn.CrossEntropyLoss(), images("train", int(part), int(parts), int(most)),
                               held_out=images("t10k", int(part), 10, 1000))
