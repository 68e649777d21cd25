"""Federated averaging by Flower, for `fedlab bench-flower`: its server and its clients over gRPC, each a process.

    flower.py server ADDRESS AGENTS ELEMENTS INPUTS ROUNDS
    flower.py client ADDRESS DATA

The model, the step and the risks are those of our agents: a hidden layer with tanh, one output, no biases,
half the squared error; a step of one row, and the risk of all rows before it and after it.
"""

import sys
import time

import flwr
import numpy
from flwr.common import ndarrays_to_parameters

LARGEST = 1 << 30  # bytes of a message


class Rounds(flwr.server.strategy.FedAvg):
    def configure_fit(self, server_round, parameters, client_manager):
        instructions = super().configure_fit(server_round, parameters, client_manager)
        print("round", time.time(), flush=True)
        return instructions

    def aggregate_fit(self, server_round, results, failures):
        if failures:
            sys.exit(f"a client failed: {failures[0]}")
        return super().aggregate_fit(server_round, results, failures)


def serve(address, agents, elements, inputs, rounds):
    hidden = elements // (inputs + 1)
    draw = numpy.random.default_rng(1)
    first = [(draw.standard_normal((hidden, inputs)) * 0.1).astype(numpy.float32),
             (draw.standard_normal((1, hidden)) * hidden ** -0.5).astype(numpy.float32)]
    strategy = Rounds(fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=agents, min_available_clients=agents,
                      accept_failures=False, initial_parameters=ndarrays_to_parameters(first))
    flwr.server.start_server(server_address=address, config=flwr.server.ServerConfig(num_rounds=rounds),
                             strategy=strategy, grpc_max_message_length=LARGEST)


class Client(flwr.client.NumPyClient):
    def __init__(self, data):
        rows = numpy.loadtxt(data, delimiter=",", skiprows=1, dtype=numpy.float32, ndmin=2)
        self.x, self.y = rows[:, :-1], rows[:, -1:]
        self.draw = numpy.random.default_rng()

    def risk(self, inner, outer):
        error = numpy.tanh(self.x @ inner.T) @ outer.T - self.y
        return float(0.5 * numpy.mean(error * error))

    def fit(self, parameters, config):
        inner, outer = parameters
        before = self.risk(inner, outer)
        k = self.draw.integers(len(self.x))
        x, hidden = self.x[k:k + 1], numpy.tanh(self.x[k:k + 1] @ inner.T)
        error = hidden @ outer.T - self.y[k:k + 1]
        back = (error @ outer) * (1 - hidden * hidden)
        step = numpy.float32(0.01)
        inner, outer = inner - step * (back.T @ x), outer - step * (error.T @ hidden)
        return [inner, outer], len(self.x), {"before": before, "after": self.risk(inner, outer)}


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        flwr.client.start_client(server_address=sys.argv[2], client=Client(sys.argv[3]).to_client(),
                                 grpc_max_message_length=LARGEST)
