// Package theory computes theoretical predictions for federated algorithms, as closed forms or exact recursions for any
// parameters. Experiments compare their measurements with these predictions. docs/EXPERIMENTS.md lists the sources:
// papers, lectures and notes.
//
// If a source gives only an upper bound (eq. (40) of the lecture, Theorem 2.1 of Renard's notes), the package computes
// the published bound with misprints corrected. For eq. (75) of the lecture and eq. (5.57) in chapter 5 of Vlaski and
// Sayed, it computes only the leading order μσ²/ν, without the factor 4 and terms of order μ².
//
// Where an exact value can be computed, the package does so: [LMS] computes the mean and the second moment of federated
// averaging for least-mean-square problems at any step size. The package implements the equations independently and
// does not import the code that it is compared with.
package theory
