// Package join enrols a machine as a device of a federation. It generates the device's keys, exchanges a token for a
// certificate with the coordinator, and writes agentd's files. The exchange is described in docs/PROTOCOL.md, section
// 14.
//
// An interrupted enrolment can be repeated: keys and answer are kept in a separate folder until all files are in place.
package join
