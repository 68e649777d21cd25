// Package acl says who may read and write which topic at a broker. It is the
// table of docs/PROTOCOL.md, section 2, with the D2D topics beside it:
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
// Nobody may do anything in another federation, even under the same names.
//
// [RuleTable.Allowed] serves the embedded broker (its Options.Allow), and
// [RuleTable.MosquittoACLFile] writes the same rules as Mosquitto's acl_file. [RuleTable.RetainedBytesQuota],
// which Mosquitto has nothing for, bounds what a user may have retained. Package
// acltest holds both against one table of cases.
package acl
