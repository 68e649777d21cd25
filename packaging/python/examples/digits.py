"""A network of scikit-learn on its handwritten digits.

    trainers:
    - name: digits
      command: [fedmesh-trainer, "digits:make", "0", "4"]
      dir: /opt/digits

The arguments choose part 0 of 4 of the images. A fifth of them is held out.
"""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import fedmesh.sklearn


def make(part: str = "0", parts: str = "1") -> fedmesh.sklearn.Sklearn:
    x, y = load_digits(return_X_y=True)
    x, y = x[int(part)::int(parts)] / 16, y[int(part)::int(parts)]
    n = len(x) - len(x) // 5
    network = MLPClassifier(hidden_layer_sizes=32, solver="sgd", momentum=0, random_state=1)
    return fedmesh.sklearn.Sklearn(network, x[:n], y[:n], classes=range(10), held_out=(x[n:], y[n:]))
