// Package learner compares the speed of local training steps in fedmesh with an equal implementation in numpy. Run it
// with `make bench-learner`.
package learner
