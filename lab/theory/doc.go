// Package theory holds what the documents predict: closed forms and exact recursions, for arbitrary parameters, that
// the experiments print beside what they measure.
//
// Where a document gives only an upper bound (lecture (40); notes Thm 2.1), the published bound is used, with misprints
// corrected.
// Of lecture (75) and ch5 (5.57) only the order μσ²/ν is here, without their factor 4 and O(μ²). Where the quantity
// itself can be computed, it is: [LMS] follows the mean and the second moment of least-mean-square federated averaging
// exactly, for any step size.
//
// It is written from the equations and shares no code with what it predicts: it imports nothing of ours.
package theory
