package d2d

// Spread tells whether local step t of a block of h steps, from 1, takes a
// gradient on an agent that affords only e < h of them: they are spread evenly
// over the block and each is scaled by h/e. It mixes at all steps.
func Spread(t, h, e uint64) bool { return t*e/h != (t-1)*e/h }
