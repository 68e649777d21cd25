// Package found founds a federation: of a few answers it makes the coordinator's key and its configuration, and the
// configuration that all devices share.
package found
