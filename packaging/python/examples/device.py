"""A device without agentd: the trainer of logistic.py and the agent in one program.

    python device.py tcp://broker.example:1883 plant press-7 press-7.key COORDINATORS_KEY rows.csv label

`agentd key new press-7.key`, on any machine, makes the key and says what the coordinator's list of agents wants. The
task names the trainer logistic.
"""

from __future__ import annotations

import logging
import signal
import sys

from logistic import Logistic

import fedmesh.agent


def main(broker: str, federation: str, id: str, key: str, coordinator_key: str, rows: str, label: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    agent = fedmesh.agent.Agent(broker, federation, id, key, coordinator_key,
                                trainers={"logistic": lambda: Logistic(rows, label)})
    signal.signal(signal.SIGTERM, lambda *_: agent.stop())
    agent.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
