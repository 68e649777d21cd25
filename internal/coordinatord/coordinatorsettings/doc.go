// Package coordinatorsettings defines and validates coordinator.yaml, and converts it into the configurations of the
// packages that the coordinator consists of.
package coordinatorsettings
