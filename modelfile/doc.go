// Package modelfile reads and writes safetensors files of trained models, whose metadata (see docs/MODEL.md) contain
// everything required for predictions. For the same model, the coordinator and an agent write identical bytes, except
// for the key "from".
package modelfile
