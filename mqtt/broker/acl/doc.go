// Package acl defines who may read and write which topic at a broker. It implements the table of docs/PROTOCOL.md,
// section 2, with the D2D topics added:
//
//	topic under {prefix}/{fed}/           device {fed}-{id}   {fed}-coordinator
//	round, m/+/+                          read                read, write
//	x/+/+/+, b/+/+                        read                read, write
//	d/{dev}                               read its own        read, write
//	s/{dev}/loop, p/{dev}                 both, its own       read, write
//	s/{dev}, u/0/{dev}/+/+                write its own       read, write
//	x/{dev}/+/+, b/+/{dev}                write its own       read, write
//	all others, such as the loop m/loop   nothing             read, write
//
// A user has no access to the topics of another federation, even under the same name.
//
// [RuleTable.Allowed] implements Options.Allow of the embedded broker. [RuleTable.MosquittoACLFile] writes the same
// rules as Mosquitto's acl_file. [RuleTable.RetainedBytesQuota] limits the retained messages of a user, for which
// Mosquitto has no equivalent. Package acltest tests both brokers with one table of cases.
package acl
