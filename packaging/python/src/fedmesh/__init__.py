"""What Python programs do with fedmesh, which trains one model across devices that keep their data.

fedmesh.trainer   a model of your own, trained under agentd
fedmesh.model     predict with a model, and write the one that a task begins with
fedmesh.agent     a device of a federation without agentd
fedmesh.history   the rounds of a coordinator, as columns
fedmesh.sklearn   a trainer around an estimator of scikit-learn
fedmesh.torch     a trainer around a module of PyTorch
fedmesh.flower    a trainer around an unchanged client of Flower
"""
