package rule

// Cut is cut.
var Cut = trimCount
