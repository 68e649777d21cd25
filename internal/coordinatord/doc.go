// Package coordinatord runs the program coordinator: one run of a federation after the other, the tasks that commands
// apply, the enrolment of devices, and the replica that takes over when the leader fails. (Package coordinator is the
// host of one run.)
package coordinatord
