// Package agentlist reads and edits the file of identity.agents_file: one line per agent, with its id and its public
// key.
package agentlist
