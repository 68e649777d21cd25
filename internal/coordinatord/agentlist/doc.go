// Package agentlist reads and edits the file of identity.agents_file. Each line of the file has the id and the public
// key of one agent.
package agentlist
