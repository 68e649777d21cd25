"""Recomputes the last model of a run from the files of a dump, with numpy and nothing of ours.

    python3 recompute.py DUMP/experiment.json DUMP/run-0000

Federated averaging (parameters) and FedDec, of linear, logistic and softmax models: all without hidden layers.
"""
import json
import os
import sys

import numpy as np

experiment, folder = json.load(open(sys.argv[1])), sys.argv[2]
problem = json.load(open(os.path.join(folder, "problem.json")))


def array(name):
    path = os.path.join(folder, name + ".npy")
    return np.load(path) if os.path.exists(path) else None


K = problem["agents"]
p = np.array(problem["weights"] or np.ones(K))
p = p / p.sum()
mu = experiment["step_size"]
steps, scale, batch, noise = array("steps"), array("scale"), array("batch"), array("noise")
first = np.concatenate([[0], np.cumsum(batch)])  # of each step, its first sample
held, held_y = array("x"), array("y")
ends = None if held is None else np.concatenate([[0], np.cumsum(array("rows"))])
where = {(i, k): [] for i, k, _ in steps.tolist()}
for s, (i, k, _) in enumerate(steps.tolist()):
    where[i, k].append(s)


def gradient(w, x, y):
    """That of the mean risk of samples, and of the ridge."""
    model, M = problem["model"], x.shape[1]
    C = model["outputs"]
    weights, bias = w[:C * M].reshape(C, M), w[C * M:] if model["bias"] else np.zeros(C)
    z = x @ weights.T + bias  # samples x outputs
    if model["risk"] == "softmax":
        z = np.exp(z - z.max(axis=1, keepdims=True))
        slope = z / z.sum(axis=1, keepdims=True) - np.eye(C)[y.astype(int)]
    elif model["risk"] == "squared":
        slope = z - y[:, None]
    elif model["risk"] == "full_squared":
        slope = 2 * (z - y[:, None])
    else:
        slope = -y[:, None] / (1 + np.exp(y[:, None] * z))
    of_risk = np.concatenate([(slope.T @ x / len(x)).ravel(), slope.mean(axis=0) if model["bias"] else []])
    return of_risk + model["ridge"] * w


def step(w, s, size):
    """One local step: w - size*scale*(gradient of the mean risk of its samples + noise)."""
    k, at = steps[s, 1], slice(first[s], first[s + 1])
    if batch[s] == 0:
        x, y = held[ends[k]:ends[k + 1]], held_y[ends[k]:ends[k + 1]]
    elif array("sample_rows") is not None:
        rows = ends[k] + array("sample_rows")[at]
        x, y = held[rows], held_y[rows]
    else:
        x, y = array("sample_x")[at], array("sample_y")[at]
    g = gradient(w, x, y)
    if noise is not None:
        g = g + noise[s]
    return w - size * scale[s] * g


def eta(t):
    if not mu["diminishing"]:
        return mu["constant"]
    convexity = mu["strong_convexity"] or problem["strong_convexity"]
    smoothness = mu["smoothness"] or problem["smoothness"]
    return 2 / (convexity * (max(8 * smoothness / convexity - 1, H) + t))


drawn = {}
for i, k, times in array("participants").tolist():
    drawn.setdefault(i, []).append((k, times))
w = array("start")
if experiment["algorithm"] == "fedavg":
    for i in range(1, experiment["rounds"] + 1):
        mine = drawn.get(i, [])  # none if nobody responds
        total, change = sum(times for _, times in mine), 0
        for k, times in mine:
            phi, own = w, where[i, k]
            for s in own:
                phi = step(phi, s, mu["constant"] * K * p[k] / (len(own) if mu["normalize"] else 1))
            change = change + times / total * (phi - w)
        w = w + change
else:
    H, W = experiment["mixing"]["server_every"], array("W")
    gradients = np.broadcast_to(experiment["mixing"]["gradients"], K)
    z = np.tile(w, (K, 1))
    for t in range(1, experiment["rounds"]):
        for k in range(K):
            E = gradients[k] or H
            if (t % H + 1) * E // H > t % H * E // H:  # E of H steps, evenly
                z[k] = step(z[k], where[t, k][0], eta(t) * K * p[k] * H / E)
        if (t + 1) % experiment["mixing"]["every"] == 0:
            z = (W if W.ndim == 2 else W[t - 1]) @ z
        if (t + 1) % H == 0:
            z[:] = sum(times * z[k] for k, times in drawn[t]) / sum(times for _, times in drawn[t])
    w = z.mean(axis=0)

ours = array("final")
off = np.abs(w - ours).max() / np.abs(ours).max()
print(f"{len(steps)} steps, off by {off:.1e}")
sys.exit(0 if off < 1e-10 else 1)
