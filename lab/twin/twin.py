"""The algorithms of the documents, one function each, as literally as they can be written.

    python3 twin.py make  testdata     write the inputs and the iterates that follow from them
    python3 twin.py check testdata     derive the iterates again from the inputs in the files, and compare

Nothing here knows of the Go code: the equations named in each function are all it was written from. The files hold every
draw (participants, rows, responses, perturbations, mixing matrices), so that no generator of random numbers is involved.
"""
import json
import math
import os
import random
import sys


# -- vectors ---------------------------------------------------------------------------------------------------------

def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def minus(a, b):
    return [x - y for x, y in zip(a, b)]


def times(c, a):
    return [c * x for x in a]


def mean(vectors):
    total = vectors[0]
    for v in vectors[1:]:
        total = add(total, v)
    return times(1 / len(vectors), total)


# -- gradients of one sample's loss Q(w; h, gamma) --------------------------------------------------------------------

def squared(case, w, h, gamma):
    """lecture (37): -h (gamma - h'w)."""
    return times(-(gamma - dot(h, w)), h)


def logistic(case, w, h, gamma):
    """lecture (15), (17): -gamma h / (1 + exp(gamma h'w)), and + rho w of (rho/2) ||w||^2."""
    return add(times(-gamma / (1 + math.exp(gamma * dot(h, w))), h), times(case["ridge"], w))


def bilinear(case, w, h, gamma):
    """2nd-order (40), (41): ln(1 + exp(-gamma w1' W2 h)), and + rho w. The printed (42) has - rho w.

    The vector is W2 row by row, then w1."""
    units, inputs = case["hidden"], len(h)
    W2 = [w[i * inputs:(i + 1) * inputs] for i in range(units)]
    w1 = w[units * inputs:]
    W2h = [dot(row, h) for row in W2]
    slope = -gamma / (1 + math.exp(gamma * dot(w1, W2h)))
    by_W2 = [slope * w1[i] * h[j] for i in range(units) for j in range(inputs)]
    by_w1 = [slope * v for v in W2h]
    return add(by_W2 + by_w1, times(case["ridge"], w))


def row(case, w, h, gamma):
    """feddec section 4: F_i = (1/M) ||X z - Y||^2, a sampled row has the gradient 2 x (x'z - y)."""
    return times(2 * (dot(h, w) - gamma), h)


LOSS = {"squared": squared, "logistic": logistic, "bilinear": bilinear, "row": row}


def sample_gradient(case, agent, w, n):
    return LOSS[case["risk"]](case, w, agent["x"][n], agent["y"][n])


def exact_gradient(case, agent, w):
    """The gradient of (1): the mean over all N samples."""
    return mean([sample_gradient(case, agent, w, n) for n in range(len(agent["y"]))])


def minibatch(case, agent, w, step):
    """2nd-order (7)."""
    return mean([sample_gradient(case, agent, w, n) for n in step["rows"]])


def stochastic(case, agent, w, step):
    """2nd-order (7), (8), (9), in any combination: perturbed inside the bracket of (42), then scaled by 1/delta or zero."""
    g = minibatch(case, agent, w, step)
    if "noise" in step:
        g = add(g, step["noise"])
    if "responds" in step:
        g = times(1 / agent["delta"], g) if step["responds"] else [0.0] * len(w)
    return g


# -- the algorithms ----------------------------------------------------------------------------------------------------

def gradient_parameters(case):
    """lecture (11), (12)."""
    w, mu = case["start"], case["step_size"]
    for _ in case["rounds"]:
        psi = [minus(w, times(mu, exact_gradient(case, a, w))) for a in case["agents"]]
        w = mean(psi)
        yield w


def gradient_gradients(case):
    """lecture (13), (14)."""
    w, mu, K = case["start"], case["step_size"], len(case["agents"])
    for _ in case["rounds"]:
        g = [exact_gradient(case, a, w) for a in case["agents"]]
        for gk in g:
            w = minus(w, times(mu / K, gk))
        yield w


def sgd_parameters(case):
    """lecture (31), (32)."""
    w, mu = case["start"], case["step_size"]
    for r in case["rounds"]:
        psi = [minus(w, times(mu, stochastic(case, a, w, r["steps"][k][0]))) for k, a in enumerate(case["agents"])]
        w = mean(psi)
        yield w


def sgd_gradients(case):
    """lecture (33), (34)."""
    w, mu, K = case["start"], case["step_size"], len(case["agents"])
    for r in case["rounds"]:
        g = [stochastic(case, a, w, r["steps"][k][0]) for k, a in enumerate(case["agents"])]
        for gk in g:
            w = minus(w, times(mu / K, gk))
        yield w


def asynchronous(case):
    """lecture (44), (45): a single agent k_i."""
    w, mu = case["start"], case["step_size"]
    for r in case["rounds"]:
        [k] = r["participants"]
        w = minus(w, times(mu, stochastic(case, case["agents"][k], w, r["steps"][0][0])))
        yield w


def federated_averaging(case):
    """ch5 (5.9), (5.10), (5.11) with mu_k = mu / E_k (5.26)."""
    w, mu = case["start"], case["step_size"]
    for r in case["rounds"]:
        psi = []
        for k, steps in zip(r["participants"], r["steps"]):
            a = case["agents"][k]
            mu_k = mu / a["local_steps"]
            phi = w
            for e in range(a["local_steps"]):
                phi = minus(phi, times(mu_k, stochastic(case, a, phi, steps[e])))
            psi.append(phi)
        w = mean(psi)
        yield w


def fedavg_notes(case):
    """notes Alg. 1: tau steps of size eta at every client, and x + the mean of the changes."""
    x, eta = case["start"], case["step_size"]
    for r in case["rounds"]:
        changes = []
        for a, steps in zip(case["agents"], r["steps"]):
            xi = x
            for k in range(case["tau"]):
                xi = minus(xi, times(eta, stochastic(case, a, xi, steps[k])))
            changes.append(minus(xi, x))
        x = add(x, mean(changes))
        yield x


def weighted_step(case):
    """2nd-order (5), (6): p_k in the step size. Where no rows are drawn, the gradient is exact."""
    w, mu, K = case["start"], case["step_size"], len(case["agents"])
    for r in case["rounds"]:
        last = []
        for k, steps in zip(r["participants"], r["steps"]):
            a = case["agents"][k]
            wk = w
            for e in range(a["local_steps"]):
                g = stochastic(case, a, wk, steps[e]) if steps else exact_gradient(case, a, wk)
                wk = minus(wk, times(mu * K * a["p"] / a["local_steps"], g))
            last.append(wk)
        w = mean(last)
        yield w


def weighted_mean(case):
    """2nd-order (5) with p_k left out of the step size: w + (K/L) sum p_k (w_{k,E_k} - w)."""
    w, mu, K = case["start"], case["step_size"], len(case["agents"])
    for r in case["rounds"]:
        L = len(r["participants"])
        change = [0.0] * len(w)
        for k, steps in zip(r["participants"], r["steps"]):
            a = case["agents"][k]
            wk = w
            for e in range(a["local_steps"]):
                wk = minus(wk, times(mu / a["local_steps"], stochastic(case, a, wk, steps[e])))
            change = add(change, times(a["p"], minus(wk, w)))
        w = add(w, times(K / L, change))
        yield w


def weighted_gradients(case):
    """2nd-order (19) with E_k = 1: w - mu (K/L) sum p_k g_k over the participants."""
    w, mu, K = case["start"], case["step_size"], len(case["agents"])
    for r in case["rounds"]:
        L = len(r["participants"])
        total = [0.0] * len(w)
        for k, steps in zip(r["participants"], r["steps"]):
            total = add(total, times(case["agents"][k]["p"], stochastic(case, case["agents"][k], w, steps[0])))
        w = minus(w, times(mu * K / L, total))
        yield w


def feddec(case):
    """feddec Alg. 1. t counts from 1, the server acts when (t+1) mod H = 0, and the iterates are those of all agents.

    Each round of the file is one t: its rows, its W^t and, where the server acts, the agents it drew, with replacement."""
    n, mu, gamma, H = len(case["agents"]), case["strong_convexity"], case["gamma"], case["server_every"]
    tau = case.get("clip")
    z = [case["start"] for _ in range(n)]                                                        # line 1
    for t, r in enumerate(case["rounds"], 1):                                                    # line 2
        W = r["mixing"]                                                                          # line 3
        eta = 2 / (mu * (t + gamma))
        half = [minus(z[i], times(eta, minibatch(case, a, z[i], r["steps"][i][0])))              # lines 4, 5
                for i, a in enumerate(case["agents"])]
        x = []
        for i in range(n):                                                                       # line 6
            if tau:  # clipped mixing: x_i + sum_j W_ij clip(x_j - x_i, tau)
                xi = half[i]
                for j in range(n):
                    d = minus(half[j], half[i])
                    xi = add(xi, times(W[i][j] * min(1, tau / (math.sqrt(sum(v * v for v in d)) or tau)), d))
            else:
                xi = [0.0] * len(half[0])
                for j in range(n):
                    xi = add(xi, times(W[i][j], half[j]))
            x.append(xi)
        if (t + 1) % H == 0:                                                                     # line 7
            server = [0.0] * len(x[0])
            for j in r["participants"]:                                                          # lines 8, 9
                server = add(server, x[j])
            server = times(1 / len(r["participants"]), server)
            z = [server for _ in range(n)]                                                       # line 10
        else:
            z = x                                                                                # line 12
        yield [v for zi in z for v in zi]


ALGORITHM = {
    "gradient-parameters": gradient_parameters, "gradient-gradients": gradient_gradients,
    "sgd-parameters": sgd_parameters, "sgd-gradients": sgd_gradients,
    "asynchronous": asynchronous, "federated-averaging": federated_averaging, "fedavg-notes": fedavg_notes,
    "weighted-step": weighted_step, "weighted-exact": weighted_step, "weighted-mean": weighted_mean,
    "weighted-gradients": weighted_gradients,
    "minibatch": federated_averaging, "perturbed": federated_averaging, "straggling": federated_averaging,
    "composed": weighted_step,
    "feddec": feddec, "feddec-failures": feddec, "feddec-fedavg": feddec, "feddec-clipped": feddec,
}


# -- the inputs --------------------------------------------------------------------------------------------------------

def number(rng, scale=1.0):
    """Four decimals: the file says all there is."""
    return round(scale * rng.gauss(0, 1), 4)


def problem(rng, risk, agents, inputs, rows, **more):
    case = {"risk": risk, "inputs": inputs, "ridge": 0.0, **more}
    case["agents"] = []
    for k in range(agents):
        x = [[number(rng) for _ in range(inputs)] for _ in range(rows + k % 3)]
        if risk in ("squared", "row"):
            y = [number(rng, 2) for _ in x]
        else:
            y = [rng.choice([-1.0, 1.0]) for _ in x]
        case["agents"].append({"x": x, "y": y})
    size = inputs if risk != "bilinear" else case["hidden"] * (inputs + 1)
    case["start"] = [number(rng, 0.5) for _ in range(size)]
    return case


def step(rng, agent, batch=1):
    return {"rows": [rng.randrange(len(agent["y"])) for _ in range(batch)]}


def everyone(rng, case, rounds):
    K = len(case["agents"])
    return [{"participants": list(range(K)), "steps": [[step(rng, a)] for a in case["agents"]]} for _ in range(rounds)]


def some(rng, case, rounds, L, draw):
    """Rounds with L agents drawn without replacement, each with its E_k steps."""
    out = []
    for _ in range(rounds):
        who = sorted(rng.sample(range(len(case["agents"])), L))
        out.append({"participants": who,
                    "steps": [[draw(case["agents"][k], k) for _ in range(case["agents"][k]["local_steps"])] for k in who]})
    return out


def constructions(rng, name, minibatches, perturbed, straggling, weighted):
    """The bilinear network of 2nd-order (40), agents with unequal E_k, with the gradient constructions asked for."""
    case = problem(rng, "bilinear", 6, 5, 8, hidden=3, ridge=0.1, step_size=0.2)
    for k, a in enumerate(case["agents"]):
        a["local_steps"] = 1 + k % 4
        if straggling:
            a["delta"] = [0.5, 0.8][k % 2]
        if weighted:
            a["p"] = [0.1, 0.2, 0.05, 0.25, 0.3, 0.1][k]

    def draw(a, k):
        d = step(rng, a, 1 + k % 3 if minibatches else 1)
        if perturbed:
            d["noise"] = [number(rng, 0.3) for _ in case["start"]]
        if straggling:
            d["responds"] = rng.random() < a["delta"]
        return d

    case["rounds"] = some(rng, case, 12, 4, draw)
    return case


EDGES = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4)]


def metropolis(n, edges):
    """w_ij = 1 / (1 + max of the degrees), the rest at home: symmetric and doubly stochastic on whatever links are up."""
    degree = [sum(i in e for e in edges) for i in range(n)]
    W = [[0.0] * n for _ in range(n)]
    for i, j in edges:
        W[i][j] = W[j][i] = 1 / (1 + max(degree[i], degree[j]))
    for i in range(n):
        W[i][i] = 1 - sum(W[i])
    return W


def federation(rng, up):
    """Five agents on six links, H = 4, K = 3 with repeated draws; up(t) lists the links of step t."""
    n = 5
    case = problem(rng, "row", n, 4, 6, strong_convexity=0.5, gamma=30.0, server_every=4)
    case["edges"], case["rounds"] = [list(e) for e in EDGES], []
    for t in range(1, 14):
        links = up(t)
        r = {"links": [e in links for e in EDGES], "mixing": metropolis(n, links),
             "steps": [[step(rng, a)] for a in case["agents"]]}
        if (t + 1) % case["server_every"] == 0:
            r["participants"] = [[0, 3, 3], [4, 1, 2], [2, 2, 2]][(t + 1) // 4 - 1]
        case["rounds"].append(r)
    return case


def inputs(name):
    rng = random.Random(name)
    if name.startswith("gradient"):
        rng = random.Random("gradient")  # both exchanges of one problem
        case = problem(rng, "logistic", 4, 3, 7, ridge=0.05, step_size=0.4)
        case["rounds"] = [{"participants": [0, 1, 2, 3]} for _ in range(10)]
    elif name.startswith("sgd"):
        rng = random.Random("sgd")
        case = problem(rng, "squared", 4, 3, 7, step_size=0.15)
        case["rounds"] = everyone(rng, case, 15)
    elif name == "asynchronous":
        case = problem(rng, "squared", 4, 3, 7, step_size=0.15)
        case["rounds"] = []
        for _ in range(20):
            k = rng.randrange(4)
            case["rounds"].append({"participants": [k], "steps": [[step(rng, case["agents"][k])]]})
    elif name == "federated-averaging":
        case = problem(rng, "squared", 7, 3, 6, step_size=0.3)
        for k, a in enumerate(case["agents"]):
            a["local_steps"] = [1, 2, 5, 3, 8, 1, 4][k]
        case["rounds"] = some(rng, case, 15, 3, lambda a, k: step(rng, a))
    elif name == "fedavg-notes":
        case = problem(rng, "squared", 4, 3, 6, step_size=0.06, tau=5)
        case["rounds"] = [{"participants": list(range(4)), "steps": [[step(rng, a) for _ in range(5)] for a in case["agents"]]}
                          for _ in range(10)]
    elif name == "weighted-exact":
        case = constructions(rng, name, False, False, False, True)
        case["rounds"] = [{"participants": list(range(6)), "steps": [None] * 6} for _ in range(10)]
    elif name.startswith("weighted"):
        rng = random.Random("weighted")
        case = constructions(rng, name, True, False, False, True)
    elif name in ("minibatch", "perturbed", "straggling", "composed"):
        every = name == "composed"
        case = constructions(rng, name, every or name == "minibatch", every or name == "perturbed",
                             every or name == "straggling", every)
    elif name == "feddec":
        case = federation(rng, lambda t: EDGES)
    elif name == "feddec-failures":
        case = federation(rng, lambda t: [] if t == 5 else [e for e in EDGES if rng.random() < 0.5])
    elif name == "feddec-clipped":
        case = federation(rng, lambda t: EDGES)
        case["clip"] = 0.05
    elif name == "feddec-fedavg":
        case = federation(rng, lambda t: [])
    return {"algorithm": name, "source": " ".join(ALGORITHM[name].__doc__.split()), **case}


# -- files -------------------------------------------------------------------------------------------------------------

def main(command, folder):
    for name, algorithm in ALGORITHM.items():
        path = os.path.join(folder, name + ".json")
        if command == "make":
            case = inputs(name)
            case["iterates"] = list(algorithm(case))
            with open(path, "w", encoding="utf-8") as f:
                json.dump(case, f, ensure_ascii=False)
                f.write("\n")
            continue
        with open(path, encoding="utf-8") as f:
            case = json.load(f)
        again = list(algorithm(case))
        worst = max(abs(a - b) for v, w in zip(again, case["iterates"]) for a, b in zip(v, w))
        if len(again) != len(case["iterates"]) or not worst <= 1e-12:
            sys.exit("%s: %d iterates, %d in the file, which differ by up to %g" % (name, len(again), len(case["iterates"]), worst))
    known = sorted(name + ".json" for name in ALGORITHM)
    if sorted(os.listdir(folder)) != known:
        sys.exit("%s holds %s, not %s" % (folder, sorted(os.listdir(folder)), known))


if __name__ == "__main__":
    main(*sys.argv[1:])
