// Package sim simulates federated algorithms from several publications, with many agents in one process. Local steps,
// sampling, aggregation and mixing use the same code as the daemons, so that the results also apply to the daemons. In
// float32, a simulated run gives bit-for-bit the same parameters as a live federation with the same data, ids and seed.
//
// An [Experiment] determines a simulation completely. The simulator can create the learning problem itself:
//
//	e := sim.Default() // the lecture's Lab #1
//	e.Agents, e.Participants.Count, e.LocalSteps = 100, 10, sim.Each(10)
//	e.Data.Spread, e.Data.Fresh, e.Runs, e.Rounds = 0.1, true, 40, 3000
//	result, err := sim.Run(ctx, e, nil)
//	msd := result.Steady("msd", 2000) // E‖w⁰ − w_i‖² over rounds 2000 … 3000: mean over the runs, 95 % interval
//
// Go code can also provide the instances, one per run or one for all, with additional metrics:
//
//	result, err := sim.RunInstances(ctx, e, func(run int) (sim.Instance[float64], error) {
//		p := data.NewLinear[float64](spec, 20, nil, uint64(run))
//		p.Metrics = []data.Metric{{Name: "x", Of: func(w []float64) float64 { return w[0] }}}
//		return sim.Instance[float64]{Problem: p}, nil
//	}, nil)
//
// The result contains all metrics that are known for the problem: the squared distance `msd` = ‖w⁰ − w‖² from the
// optimum w⁰, `excess_risk` = J(w) − J(w⁰), `risk` = J(w), `gradient_norm2` = ‖∇J(w)‖², and the problem's own metrics.
// `uplink_bytes` and `total_bytes` are the bytes sent so far. For FedDec, `consensus` is (1/n)Σ‖z_i − z̄‖², where z_i
// are the agents' models and z̄ is their mean, before the server averages. All other metrics of FedDec are measured at
// z̄. If RecordMeanIterate is set, `shadow_excess_risk` is also recorded. The first record is the initial model. It has
// the number 0, or 1 for FedDec.
//
// The same experiment gives the same bits on any number of cores. An agent's generator depends only on the run, the
// round and the agent, and updates are added in a fixed order. An agent exists only while its work of a round is
// computed.
package sim
