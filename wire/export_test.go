package wire

// These names let the tests of this package see its inside.
var (
	MontgomeryForTest = x25519PublicFromEd25519
	ScalarForTest     = x25519ScalarOf
)
