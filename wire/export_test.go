package wire

// Internal functions for the tests of this package.
var (
	MontgomeryForTest = x25519PublicFromEd25519
	ScalarForTest     = x25519ScalarOf
)
