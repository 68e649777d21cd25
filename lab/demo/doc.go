// Package demo is the demonstration of fedmesh. It runs a broker, a coordinator and twelve agents on one machine. The
// agents learn to predict air pollution without sharing their data.
package demo
