package wire

// What tests of this package see of its inside.
var (
	MontgomeryForTest = montgomery
	ScalarForTest     = scalarOf
)
