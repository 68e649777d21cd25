// Package scale measures what a round costs the finished coordinator, a real Mosquitto and a cluster of NATS, with thin
// agents: sessions that say what agents say, sealed and signed, and send updates that are ready, by the thousand in one
// process. It fits the costs of a hello, an update, a megabyte and a recipient of an announcement, holds them against a
// federation that the fit has not seen, and writes docs/SCALE.md from them: `make bench-scale`.
package scale
