// Package history exports a federation's history to other tools: as CSV, as JSON, as TensorBoard event files, and to an
// MLflow server. The export to MLflow also works while rounds are in progress.
package history
