"""A trainer around a module of PyTorch.

    # images.py
    def make():
        train, test = datasets()
        return fedmesh.torch.Torch(Net(), nn.CrossEntropyLoss(), train, held_out=test)

    # agentd.yaml
    trainers:
    - name: images
      command: [fedmesh-trainer, "images:make"]
      dir: /opt/images

A step is one of the optimizer's, on the mean loss of a batch. Its learning rate is the task's step size.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Set, Tuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, TensorDataset

from fedmesh.trainer import Evaluated, Job, Start, Trainer

__all__ = ["Torch"]

_AT_ONCE = 512  # rows whose loss is computed together


def _sgd(parameters: Iterable[Any]) -> Any:
    return torch.optim.SGD(parameters, lr=1.0)


class Torch(Trainer):
    """Trains a module on a dataset.

    module      what is trained; the tensors are the floating-point ones of its state_dict, under their names there
    loss        of (outputs, target), a mean over the rows of a batch
    data        a dataset of (input, ..., target), with a length
    optimizer   makes one of parameters; plain SGD unless given. It is made anew for each block
    held_out    a dataset for `evaluate`
    device      where to compute
    loader      arguments of DataLoader, such as num_workers and collate_fn

    Devices may mix, and it knows the proximal term. Where targets are classes, evaluations have the accuracy.
    """

    def __init__(self, module: Any, loss: Callable[[Any, Any], Any], data: Any, *,
                 optimizer: Callable[[Iterable[Any]], Any] = _sgd, held_out: Optional[Any] = None,
                 device: Any = "cpu", loader: Optional[Mapping[str, Any]] = None) -> None:
        self.name = type(module).__name__
        self.device = torch.device(device)
        self.module = module.to(self.device)
        self.loss, self.data, self.held_out = loss, data, held_out
        self.optimizer = optimizer
        self.loader = dict(loader or {})
        self._optimizer: Optional[Any] = None

    def _tensors(self) -> Dict[str, Any]:
        """Return the module's own tensors. Whole numbers in it, such as a count of batches, stay the device's."""
        return {name: t for name, t in self.module.state_dict().items() if t.is_floating_point()}

    def _load(self, params: Mapping[str, npt.NDArray[np.float32]]) -> None:
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(torch.from_numpy(params[name]))

    def begin(self, start: Start) -> None:
        """Compare the task's tensors with the module's."""
        start.check(self.parameters())

    def can(self) -> Set[str]:
        """Tell that devices may mix, and whether there are rows to evaluate on."""
        return {"initial", "mixing", "proximal"} | (set() if self.held_out is None else {"evaluate"})

    def rows(self) -> int:
        """Tell how many rows the dataset has."""
        return len(self.data)

    def _batches(self, data: Any, batches: Iterable[Any]) -> Iterable[Any]:
        """Return for each list of rows what the dataset has there, as tensors."""
        if isinstance(data, TensorDataset) and not self.loader:
            return (data[torch.as_tensor(rows)] for rows in batches)
        # One after the other: a block that is to be stopped may have any number of them.
        lists = (list(map(int, rows)) for rows in batches)
        loader: Iterable[Any] = DataLoader(data, batch_sampler=lists, **self.loader)
        return loader

    def _drawn(self, job: Job, step: int) -> Any:
        rows = job.batch(step, len(self.data))
        return np.arange(len(self.data)) if isinstance(rows, slice) else rows

    def _outputs(self, batch: Any) -> Tuple[Any, Any]:
        *inputs, target = (t.to(self.device) for t in batch)
        return self.module(*inputs), target

    def fit(self, params: Dict[str, npt.NDArray[np.float32]], job: Job) -> None:
        """Take the steps."""
        self._load(params)
        if job.first == 1 or self._optimizer is None:
            self._optimizer = self.optimizer(self.module.parameters())
        for group in self._optimizer.param_groups:
            group["lr"] = job.step_size
        base = {name: torch.from_numpy(a.copy()).to(self.device) for name, a in job.base.items()}
        self.module.train()
        batches = iter(self._batches(self.data, (self._drawn(job, k) for k in range(job.first, job.last + 1))))
        for step in job:
            torch.manual_seed(int(job.rng(step).integers(2**62)))  # of dropout
            outputs, target = self._outputs(next(batches))
            self._optimizer.zero_grad()
            self.loss(outputs, target).backward()
            if job.proximal:
                for name, p in self.module.named_parameters():
                    if p.grad is not None:
                        p.grad.add_(p.detach() - base[name], alpha=job.proximal)
            self._optimizer.step()
        params.update(self.parameters())

    def _measure(self, data: Any) -> Tuple[float, Optional[float]]:
        """Return the mean loss over a dataset, and the share of correct classes if its targets are classes."""
        n, total, correct = len(data), 0.0, None
        self.module.eval()
        with torch.no_grad():
            for batch in self._batches(data, (range(k, min(k + _AT_ONCE, n)) for k in range(0, n, _AT_ONCE))):
                outputs, target = self._outputs(batch)
                total += float(self.loss(outputs, target)) * len(target)
                if not target.is_floating_point() and outputs.ndim == target.ndim + 1:
                    correct = (correct or 0) + int((outputs.argmax(1) == target).sum())
        return total / n, None if correct is None else correct / n

    def risk(self, params: Mapping[str, npt.NDArray[np.float32]]) -> float:
        """Return the mean loss over the dataset."""
        self._load(params)
        return self._measure(self.data)[0]

    def evaluate(self, params: Mapping[str, npt.NDArray[np.float32]]) -> Evaluated:
        """Return the mean loss over the rows that are held out."""
        if self.held_out is None:
            raise ValueError("no rows are held out: give held_out")
        self._load(params)
        risk, accuracy = self._measure(self.held_out)
        return Evaluated(len(self.held_out), risk, {} if accuracy is None else {"accuracy": accuracy})

    def parameters(self) -> Dict[str, npt.NDArray[Any]]:
        """Return the module's tensors as they are."""
        return {name: t.detach().cpu().numpy().copy() for name, t in self._tensors().items()}
