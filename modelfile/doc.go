// Package modelfile reads and writes the file of a trained model. It is a safetensors file whose metadata contain
// everything required for a prediction, such as the columns and the standardisation used for training. docs/MODEL.md
// lists the keys. The coordinator writes a file for each model of a run, and an agent for each model that it keeps. For
// the same model both write identical bytes, except for the key "from".
package modelfile
