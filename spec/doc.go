// Package spec contains the named options of tasks and rounds, such as the loss, the activation function, the codec and
// the sampling method. Each option is a string type whose values appear in configuration files, results and logs. Only
// package wire encodes them as bytes.
//
// Each option type has the methods UnmarshalText and Validate, whose errors list the valid names. The zero value is
// invalid.
//
// [Model], [StepSize] and [GradientNoise] are sections that the configuration files of the coordinator and of the
// simulator share. Each has a Check method.
//
// [FieldError] describes an invalid value by its key in the file, and [ProblemList] collects such errors. All
// configurations use them for validation.
package spec
