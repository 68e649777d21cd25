// Package coordinatorsettings defines coordinator.yaml, validates it, and turns it into the configurations of the
// packages that the coordinator consists of.
package coordinatorsettings
