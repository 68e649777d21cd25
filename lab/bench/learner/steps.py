"""Local steps of softmax regression and of networks in float32, for numpy_test.go.

Each line "widths batch steps", as "561,64,6 10 200", is answered by the seconds of processor time that the
steps took: draw rows, forward, backward, update. The arrays of a step are reused where numpy allows it.
"""

import sys
import time

import numpy as np


class Network:
    def __init__(self, widths, rows, rng):
        self.rng = rng
        self.x = rng.standard_normal((rows, widths[0]), dtype=np.float32)
        self.y = rng.integers(0, widths[-1], rows)
        self.w = [rng.standard_normal((m, n), dtype=np.float32) * np.float32((2 / (m + n)) ** 0.5)
                  for m, n in zip(widths, widths[1:])]
        self.b = [np.zeros(n, dtype=np.float32) for n in widths[1:]]

    def step(self, batch, mu):
        rows = self.rng.integers(0, len(self.y), batch)
        acts, y = [self.x[rows]], self.y[rows]
        last = len(self.w) - 1
        for i, (w, b) in enumerate(zip(self.w, self.b)):
            z = acts[i] @ w
            z += b
            if i < last:
                np.maximum(z, 0, out=z)
            acts.append(z)
        delta = acts.pop()
        delta -= delta.max(axis=1, keepdims=True)
        np.exp(delta, out=delta)
        delta /= delta.sum(axis=1, keepdims=True)
        delta[np.arange(batch), y] -= 1
        delta *= np.float32(mu / batch)
        for i in range(last, -1, -1):
            below = None
            if i > 0:
                below = delta @ self.w[i].T
                below *= acts[i] > 0
            self.w[i] -= acts[i].T @ delta
            self.b[i] -= delta.sum(axis=0)
            delta = below


def main():
    networks = {}
    for line in sys.stdin:
        widths, batch, steps = line.split()
        if widths not in networks:
            networks[widths] = Network([int(n) for n in widths.split(",")], 500, np.random.default_rng(1))
        network, batch = networks[widths], int(batch)
        begin = time.process_time()
        for _ in range(int(steps)):
            network.step(batch, 1e-3)
        took = time.process_time() - begin
        if not all(np.isfinite(w).all() and w.dtype == np.float32 for w in network.w):
            raise SystemExit("the steps have left float32, or diverged")
        print(took, flush=True)


main()
