"""A device of a federation without agentd: an agent in Python, on the wire, for machines where Python is all there is.

    import fedmesh.agent

    agent = fedmesh.agent.Agent(
        broker="tcp://broker.example:1883", federation="plant", id="press-7", key="press-7.key",
        coordinator_key="RrfGq...", trainers={"plant": Plant})
    signal.signal(signal.SIGTERM, lambda *_: agent.stop())
    agent.run()

or the command `fedmesh-agent`, with the same as options. It needs paho-mqtt and cryptography, the extra `agent`.

A task whose model is external (docs/TRAINER.md) is trained by the fedmesh.trainer.Trainer of that name, in this
process; any other by a linear model with the squared risk on the lines of a CSV file. Updates are signed, and sealed
where the coordinator announces a key. agentd does more: this agent is unfit for a task (reason `unsupported`), and says
why in its log, where

- devices mix with neighbours (task.mixing), updates are packed (task.codec), or gradients are sent (task.exchange)
- the task names a trainer that is not here, or wants task.proximal of one that cannot
- without a trainer: the model is another one than linear with the squared risk, or the task has frozen, personal or
  proximal parts, or inputs of readings
- the task or the round has a section that must be known and is not

Updates of the codecs signs and top_k go out whole, which the coordinator takes. Where only some devices answer, and
the others leave the broker for a while (round.gather.respond), it does as agentd. It does without TLS, passwords, the
clone detector, restricted subscriptions, reports, renewed keys, budgets, predicting, and evaluations: those of
round.evaluation wait for it until the deadline.
"""

from fedmesh.agent._client import Agent

__all__ = ["Agent"]
