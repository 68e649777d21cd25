// Package modelfile reads and writes safetensors files of trained models. The metadata of a file (see docs/MODEL.md)
// contain all information required for predictions. For the same model, the coordinator and an agent write identical
// bytes, except for the metadata key "from".
package modelfile
