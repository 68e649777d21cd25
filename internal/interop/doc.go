// Package interop checks docs/PROTOCOL.md against the code. fedmesh.agent in packaging/python is an agent in Python
// that was written from that page and shares no code with this module. The tests run it in federations together with
// agentd, under the real coordinator and a real broker. selftest.py checks it against the golden files of package wire.
// It is also an example for implementations in other languages.
//
// Other tests of packaging/python are here as well: its trainers under agentd, compared with agentd's own learner.
//
// The package contains tests only.
package interop
