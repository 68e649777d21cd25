"""Rounds of federated averaging with fresh linear data, as one writes them with numpy: all agents at once.

    python3 rounds.py AGENTS INPUTS

For each line on its input, a number of rounds, it prints the seconds that they took, and those of the processor.
"""
import sys
import time

import numpy as np

K, d = int(sys.argv[1]), int(sys.argv[2])
rng, mu, deviation = np.random.default_rng(1), 1e-5, 0.1**0.5
optimum, w, h = np.ones(d), np.zeros(d), np.empty((K, d))
for line in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(int(line)):
        rng.standard_normal(out=h)
        gamma = h @ optimum + deviation * rng.standard_normal(K)
        w = w - mu / K * ((h @ w - gamma) @ h)
    print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)
