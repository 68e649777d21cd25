"""What an agent computes (section 8 of docs/PROTOCOL.md), for linear models with the squared risk.

It leaves out hidden layers, the other risks and the exchange of gradients.
"""

import csv
import math
import operator
import struct
import time

import fedwire as w


class Declined(Exception):
    """Why the agent cannot do what it is asked: a reason of section 7.9."""

    def __init__(self, reason):
        super().__init__(f"reason {reason}")
        self.reason = reason


def supported(task):
    """Tells whether a task makes sense and is one for this client."""
    columns, more = task.features + [task.target], task.sections
    constant = task.step_size > 0 and task.strong_convexity == task.gamma == 0
    decaying = task.step_size == 0 and task.strong_convexity > 0 and task.gamma > 0
    return (
        not w.unsupported(more) and more.mixing is more.codec is more.frozen is more.huber is more.proximal is None
        and more.inputs is None  # its rows are lines of a file
        and not task.hidden and (task.outputs, task.risk, task.exchange) == (1, 1, 1)
        and len(columns) > 1 and all(columns) and len(set(columns)) == len(columns)
        and (constant or decaying) and task.ridge >= 0 and task.batch_size <= 65536
        and 0 <= task.response_prob <= 1 and (more.gradient_noise is None or more.gradient_noise.variance > 0)
        and 1 <= task.min_steps <= task.max_steps and task.budget >= 1
        and (more.standardization is None or fits(more.standardization, len(columns))))


def fits(standardization, columns):
    s = standardization
    return len(s.mean) == len(s.scale) == columns and min(s.scale) > 0 and s.clip >= 0


def dot(a, b):
    return sum(map(operator.mul, a, b))


class Learner:
    """A task and the local rows that fit it (section 8)."""

    def __init__(self, blob, path):
        try:
            self.task = task = w.decode(w.TASK, blob)
        except w.Malformed:
            raise Declined(w.UNSUPPORTED) from None
        if not supported(task):
            raise Declined(w.UNSUPPORTED)
        columns = task.features + [task.target]
        try:
            with open(path, newline="", encoding="utf-8-sig") as file:
                self.raw = [[float(row[column]) for column in columns] for row in csv.DictReader(file)]
        except (OSError, KeyError, ValueError, TypeError, csv.Error):
            raise Declined(w.BAD_DATA) from None
        if not all(math.isfinite(x) for row in self.raw for x in row):
            raise Declined(w.BAD_DATA)
        if len(self.raw) < max(1, task.min_samples):
            raise Declined(w.TOO_FEW_ROWS)
        m, bias = len(columns), [("layer0.bias", 1, [1])] * task.bias
        self.schemas = {
            w.STATISTICS: w.schema_hash(("count", 2, [1]), ("sum", 2, [m]), ("sum_squares", 2, [m])),
            w.TRAINING: w.schema_hash(("layer0.weight", 1, [1, m - 1]), *bias),
        }
        self.rows = [self.standardise(row) for row in self.raw]

    def standardise(self, row):
        """Returns (features, target); a bias is one more feature that is always 1."""
        s = self.task.sections.standardization
        if s:
            row = [(x - mean) / scale for x, mean, scale in zip(row, s.mean, s.scale)]
        *h, target = row
        if s and s.clip > 0:
            h = [max(-s.clip, min(s.clip, x)) for x in h]
        return h + [1.0] * self.task.bias, target

    def statistics(self):
        columns = list(zip(*self.raw))
        vector = [len(self.raw), *map(sum, columns), *(dot(c, c) for c in columns)]
        return struct.pack(f"<{len(vector)}d", *vector)

    def risk(self, model):
        squares = sum((target - dot(model, h)) ** 2 for h, target in self.rows)
        standardization = self.task.sections.standardization
        unit = standardization.scale[-1] ** 2 if standardization else 1  # risks are in the units of the data
        return unit * (squares / 2 / len(self.rows) + self.task.ridge / 2 * dot(model, model))

    def gradient(self, model, draw):
        task = self.task
        batch = draw.choices(self.rows, k=task.batch_size) if task.batch_size else self.rows
        if draw.random() >= (task.response_prob or 1):
            return [0.0] * len(model)
        gradient = [task.ridge * x for x in model]
        for h, target in batch:
            error = (dot(model, h) - target) / len(batch)
            gradient = [g + error * x for g, x in zip(gradient, h)]
        return [(g + self.noise(draw)) / (task.response_prob or 1) for g in gradient]

    def noise(self, draw):
        noise = self.task.sections.gradient_noise
        if not noise:
            return 0.0
        deviation = math.sqrt(noise.variance)
        if noise.law == 1:
            return draw.gauss(0, deviation)
        return deviation / math.sqrt(2) * (draw.expovariate(1) - draw.expovariate(1))  # Laplace's law

    def train(self, base, offset, weight, step_time, draw):
        """Yields after each local step; returns Δ and what else the update says."""
        task, size = self.task, len(self.rows[0][0])
        if len(base) != 4 * size:
            raise Declined(w.UNSUPPORTED)
        start = model = struct.unpack(f"<{size}f", base)
        steps = task.min_steps
        if step_time:
            steps = max(task.min_steps, min(task.max_steps, int(task.budget / 1000 / step_time)))
        spent = 0.0
        try:
            before = self.risk(model)
            for e in range(1, steps + 1):
                began = time.monotonic()
                mu = task.step_size or 2 / (task.strong_convexity * (task.gamma + offset + e))
                mu *= weight / (steps if task.normalize else 1)
                model = [x - mu * g for x, g in zip(model, self.gradient(model, draw))]
                spent += time.monotonic() - began
                yield True
            after = self.risk(model)
            delta = struct.pack(f"<{size}f", *map(operator.sub, model, start))
        except OverflowError:  # also of a number that float32 cannot hold
            raise Declined(w.DIVERGED) from None
        if not math.isfinite(before + after):
            raise Declined(w.DIVERGED)
        return delta, dict(local_steps=steps, risk_before=before, risk_after=after, step_time=spent / steps)
