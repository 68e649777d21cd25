// Package coordinatorsettings defines and validates coordinator.yaml. It converts the settings to the configuration
// structs of the coordinator's packages.
package coordinatorsettings
