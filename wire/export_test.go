package wire

// These names let the tests of this package see its inside.
var (
	MontgomeryForTest = montgomery
	ScalarForTest     = scalarOf
)
