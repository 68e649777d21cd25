package rule

// Cut exports trimCount for tests.
var Cut = trimCount
