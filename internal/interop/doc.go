// Package interop holds docs/PROTOCOL.md against the code. fedmesh.agent of packaging/python is an agent in Python,
// written from that page and sharing no code with this module. The tests let it take part in federations beside agentd,
// under the real coordinator and a real broker, and selftest.py holds it against the golden files of package wire. It
// is also an example to begin with in other languages.
//
// The other tests of packaging/python are here, too: its trainers under agentd, against agentd's own learner.
//
// The package has tests only; nothing imports it.
package interop
