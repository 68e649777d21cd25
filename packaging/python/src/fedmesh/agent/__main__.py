"""The command fedmesh-agent."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import Dict, List, Optional

from fedmesh import trainer
from fedmesh.agent._client import Agent
from fedmesh.agent._learner import Make


def main(argv: Optional[List[str]] = None) -> int:
    """Run the command until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="fedmesh-agent", description="Take part in a federation as a device, without agentd.")
    parser.add_argument("--broker", required=True, metavar="URL", help="tcp://HOST:PORT")
    parser.add_argument("--federation", required=True, metavar="NAME")
    parser.add_argument("--id", required=True, help="of this device")
    parser.add_argument("--key", required=True, metavar="FILE", help="this device's private key, as PEM")
    parser.add_argument("--coordinator-key", required=True, metavar="BASE64", help="public key of the coordinator")
    parser.add_argument("--data", metavar="CSV", help="rows of linear models, below a line of names")
    parser.add_argument("--trainer", metavar="NAME", help="what tasks call the trainer that MODULE:NAME makes")
    parser.add_argument("target", metavar="MODULE:NAME", nargs="?",
                        help="a class or function that makes a fedmesh.trainer.Trainer, as of fedmesh-trainer")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="what it is called with, as text")
    options = parser.parse_args(argv)
    if (options.trainer is None) != (options.target is None):
        parser.error("--trainer NAME and MODULE:NAME go together")
    sys.path.insert(0, os.getcwd())
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    trainers: Dict[str, Make] = {}
    if options.target is not None:
        trainers[options.trainer] = lambda: trainer._make(options.target, options.arguments)
    try:
        agent = Agent(options.broker, options.federation, options.id, options.key, options.coordinator_key,
                      options.data, trainers)
    except (ValueError, OSError) as error:
        print(f"fedmesh-agent: {error}", file=sys.stderr)
        return 1
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *_: agent.stop())
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
