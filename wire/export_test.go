package wire

// The following variables give the tests of this package access to internal functions.
var (
	MontgomeryForTest = x25519PublicFromEd25519
	ScalarForTest     = x25519ScalarOf
)
