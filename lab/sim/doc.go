// Package sim simulates the algorithms of the documents with many agents in one process. Local steps, sampling,
// aggregation and mixing use the daemons' own code, so that the results also apply to them. In float32, a run gives
// bit-identical parameters to a live federation with the same data, ids and seed.
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
// The result contains all metrics that are known for the problem: `msd` ‖w⁰ − w‖², `excess_risk` J(w) − J(w⁰), `risk`
// J(w), `gradient_norm2` ‖∇J(w)‖², and the problem's own metrics. `uplink_bytes` and `total_bytes` are the bytes sent
// so far. For FedDec, `consensus` is (1/n)Σ‖z_i − z̄‖² before the server averages, and all other metrics are measured
// at z̄. With Shadow, `shadow_excess_risk` is recorded. Record 0 is the start w_0; FedDec records z^t, and its start is
// z¹.
//
// The same experiment gives the same bits on any number of cores. An agent's generator depends only on the run, the
// round and the agent, and updates are added in a fixed order. An agent exists only while its work of a round is
// computed.
package sim
