// Package modelfile is the file of a trained model: a safetensors file whose metadata say all that a prediction needs,
// so that a model of any age predicts with the columns and the standardisation that it was trained with.
// docs/MODEL.md lists the keys. The coordinator writes it for each model of a run, and an agent for those that it
// keeps; of one model both write the same bytes, but for the key "from".
package modelfile
