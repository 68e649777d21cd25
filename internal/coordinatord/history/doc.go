// Package history writes a federation's history for other tools: as CSV, as JSON, as TensorBoard's event files,
// and to an MLflow server, also while rounds go on.
package history
