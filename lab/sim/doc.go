// Package sim runs the algorithms of the documents on many agents in one process: the learner's local steps, the
// round's sampling and folding, and d2d's mixing are the daemons' own, so that what it finds holds for them. In float32
// its trajectory equals that of a live federation with the same data, ids and seed, to the bit.
//
// An [Experiment] is all that decides a simulation. The simulator can make its problem itself:
//
//	e := sim.Default() // the lecture's Lab #1
//	e.Agents, e.Participants.Count, e.LocalSteps = 100, 10, sim.Each(10)
//	e.Data.Spread, e.Data.Fresh, e.Runs, e.Rounds = 0.1, true, 40, 3000
//	result, err := sim.Run(ctx, e, nil)
//	msd := result.Steady("msd", 2000) // E‖w⁰ − w_i‖² over rounds 2000 … 3000: mean over the runs, 95 % interval
//
// or work on instances that Go code puts together, one for each run or one for all, with metrics of its own:
//
//	result, err := sim.RunInstances(ctx, e, func(run int) (sim.Instance[float64], error) {
//		p := data.NewLinear[float64](spec, 20, nil, uint64(run))
//		p.Metrics = []data.Metric{{Name: "x", Of: func(w []float64) float64 { return w[0] }}}
//		return sim.Instance[float64]{Problem: p}, nil
//	}, nil)
//
// Recorded are, as far as the problem knows them, `msd` ‖w⁰ − w‖², `excess_risk` J(w) − J(w⁰), `risk` J(w),
// `gradient_norm2` ‖∇J(w)‖², for FedDec `consensus` (1/n)Σ‖z_i − z̄‖², in a server round before the server averages
// (and all others at z̄), with Shadow `shadow_excess_risk`, the bytes sent so far, `uplink_bytes` and `total_bytes`,
// and the metrics of the problem. Round 0 of the record is the start w_0; FedDec's are z^t, of which z¹ is the start.
//
// The same experiment gives the same bits at any number of cores: an agent's generator follows from the run, the round
// and the agent, and updates are added in the order of the agents, whoever computed them. An agent exists only while
// its part of a round is computed.
package sim
