// Package interop holds docs/PROTOCOL.md against the code. client.py is an agent in Python, written from that page and
// sharing no code with this module; the tests let it take part in a federation beside agentd, under the real
// coordinator and a real broker. It is also an example to begin with in other languages.
//
//	client.py    the agent
//	learner.py   what it computes
//	fedwire.py   the bytes: encodings, envelopes, blobs
//	selftest.py  holds fedwire.py against the golden files of package wire
//
// The tests of packaging/python are here, too: its trainers under agentd, against agentd's own learner.
//
// The package has tests only; nothing imports it.
package interop
