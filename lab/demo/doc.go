// Package demo is the demonstration: a broker, a coordinator and twelve agents
// on one machine that learn to predict air pollution from data that each
// keeps.
package demo
