"""A trainer around an estimator of scikit-learn.

    # irises.py
    def make():
        x, y = load()
        return fedmesh.sklearn.Sklearn(SGDClassifier(loss="log_loss"), x[:-30], y[:-30], classes=[0, 1, 2],
                                       held_out=(x[-30:], y[-30:]))

    # agentd.yaml
    trainers:
    - name: irises
      command: [fedmesh-trainer, "irises:make"]
      dir: /opt/irises

Estimators are SGDClassifier, SGDRegressor, MLPClassifier and MLPRegressor. A step is a partial_fit over the rows of a
batch. With the MLPs (solver sgd, without momentum) this is a gradient step on their mean loss. With the SGDs it is an
update for each of the B rows, with a B-th of the step size: nearly the same for small steps. The step size is the
task's, in the place of eta0 and learning_rate_init; `learning_rate` is constant.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Set, Tuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier, MLPRegressor

from fedmesh.trainer import Evaluated, Job, Start, Trainer

__all__ = ["Sklearn"]

Rows = npt.NDArray[Any]


class Sklearn(Trainer):
    """Trains an estimator on the rows x, y.

    estimator   is copied, with its parameters
    classes     all that there are at any device, for a classifier; those of y if they are not given
    held_out    rows x, y for `evaluate`

    The tensors are coef and intercept; of a network coef0, intercept0, coef1, ... The risk is the log loss of a
    classifier with probabilities, the share of errors of one without, and half the mean squared error of a regressor.
    """

    def __init__(self, estimator: Any, x: npt.ArrayLike, y: npt.ArrayLike, *, classes: Optional[Sequence[Any]] = None,
                 held_out: Optional[Tuple[npt.ArrayLike, npt.ArrayLike]] = None) -> None:
        self.name = type(estimator).__name__
        self.x, self.y = np.asarray(x), np.asarray(y)
        if len(self.x) != len(self.y) or not len(self.x):
            raise ValueError(f"{len(self.x)} rows of x and {len(self.y)} of y: want as many, and at least 1")
        self.held_out = None if held_out is None else (np.asarray(held_out[0]), np.asarray(held_out[1]))
        self.estimator = clone(estimator)
        self.network = isinstance(self.estimator, (MLPClassifier, MLPRegressor))
        self.classifier = bool(is_classifier(self.estimator))
        self.classes = np.unique(self.y if classes is None else np.asarray(classes)) if self.classifier else None
        self._begin()

    def _begin(self) -> None:
        """Have the estimator make its arrays. It does so in its first step, which here moves nothing."""
        settings: Dict[str, Any] = {"learning_rate": "constant"}
        settings.update({"learning_rate_init": 1e-300, "batch_size": 1} if self.network else {"eta0": 1e-300})
        self.estimator.set_params(**settings)
        self._partial_fit(slice(0, 1))
        if not self.network:
            for array in self._arrays().values():
                array[...] = 0

    def _partial_fit(self, rows: Any) -> None:
        classes = {"classes": self.classes} if self.classifier else {}
        self.estimator.partial_fit(self.x[rows], self.y[rows], **classes)

    def _arrays(self) -> Dict[str, npt.NDArray[Any]]:
        """Return the estimator's own arrays, under the names of the tensors."""
        of = self.estimator
        if not self.network:
            return {"coef": of.coef_, "intercept": of.intercept_}
        arrays = {f"coef{i}": a for i, a in enumerate(of.coefs_)}
        arrays.update({f"intercept{i}": a for i, a in enumerate(of.intercepts_)})
        return arrays

    def _load(self, params: Mapping[str, npt.ArrayLike]) -> None:
        for name, array in self._arrays().items():
            array[...] = params[name]

    def begin(self, start: Start) -> None:
        """Compare the task's tensors with the estimator's."""
        start.check(self._arrays())

    def can(self) -> Set[str]:
        """Tell that devices may mix, and whether there are rows to evaluate on."""
        return {"initial", "mixing"} | (set() if self.held_out is None else {"evaluate"})

    def rows(self) -> int:
        """Tell how many rows x has."""
        return len(self.x)

    def fit(self, params: Dict[str, npt.NDArray[np.float32]], job: Job) -> None:
        """Take the steps."""
        self._load(params)
        if self.network and job.first == 1 and hasattr(self.estimator, "_optimizer"):
            del self.estimator._optimizer  # momentum is of a block; it makes another one
        for step in job:
            rows = job.batch(step, len(self.x))
            n = len(self.x) if isinstance(rows, slice) else len(rows)
            seed = int(job.rng(step).integers(2**31))
            if self.network:
                self.estimator.set_params(learning_rate_init=job.step_size, batch_size=n, random_state=seed)
                if hasattr(self.estimator, "_optimizer"):  # it was made with another step size
                    of = self.estimator._optimizer
                    of.learning_rate_init = of.learning_rate = job.step_size
            else:
                self.estimator.set_params(eta0=job.step_size / n, random_state=seed)
            self._partial_fit(rows)
        params.update(self._arrays())

    def risk(self, params: Mapping[str, npt.ArrayLike]) -> float:
        """Return the loss over x, y."""
        self._load(params)
        return self._loss(self.x, self.y)

    def _loss(self, x: Rows, y: Rows) -> float:
        if not self.classifier:
            return float(np.mean((self.estimator.predict(x) - y) ** 2) / 2)
        if hasattr(self.estimator, "predict_proba"):
            return float(log_loss(y, self.estimator.predict_proba(x), labels=self.classes))
        return 1 - float(self.estimator.score(x, y))

    def evaluate(self, params: Mapping[str, npt.ArrayLike]) -> Evaluated:
        """Return loss and score on the rows that are held out."""
        if self.held_out is None:
            raise ValueError("no rows are held out: give held_out")
        self._load(params)
        x, y = self.held_out
        score = "accuracy" if self.classifier else "r2"
        return Evaluated(len(x), self._loss(x, y), {score: float(self.estimator.score(x, y))})

    def parameters(self) -> Dict[str, npt.NDArray[Any]]:
        """Return zeros, or the weights that a network draws by its random_state."""
        return self._arrays()
