// Package acltest tests the access rules of package acl on real MQTT brokers. [Table] lists the topics and the
// permissions of each user. [Run] checks every entry of the table on one broker.
package acltest

import "strings"

// ObserverUser is an additional user who may read and write every topic on a broker under test.
const ObserverUser = "observer"

// Users lists the MQTT users of [Table]: devices and coordinators of two federations named air and land. Some names are
// deliberately similar, so that a rule that confuses two users fails the test.
var Users = []string{"air-press", "air-press-2", "air-coordinator", "air-land-coordinator", "land-press",
	"land-coordinator"}

// TopicAccess describes the permissions of each user in [Users] on one MQTT topic.
type TopicAccess struct {
	Topic  string
	access []string // permission of each user in the order of Users: "r" (read), "w" (write), "rw" or "-" (none)
}

// MayRead reports whether the user may receive messages published to the topic.
func (r TopicAccess) MayRead(user string) bool { return strings.Contains(r.accessOf(user), "r") }

// MayWrite reports whether the user may publish to the topic.
func (r TopicAccess) MayWrite(user string) bool { return strings.Contains(r.accessOf(user), "w") }

func (r TopicAccess) accessOf(user string) string {
	for i, u := range Users {
		if u == user {
			return r.access[i]
		}
	}
	panic("acltest: no user " + user)
}

// Table is the expected access control table: one entry per topic, with one column of permissions per user.
var Table = parse(`
# topic                             air-press press-2 coord. air-land-c. land-press land-coord.

fl/v1/air/round                             r       r     rw           r          -           -
fl/v1/air/m/0a1b/m                          r       r     rw           r          -           -
fl/v1/air/m/0a1b/12                         r       r     rw           r          -           -
fl/v1/air/d/air-press                       r       -     rw           -          -           -
fl/v1/air/d/air-press-2                     -       r     rw           -          -           -
fl/v1/air/s/air-press                       w       -     rw           -          -           -
fl/v1/air/s/air-press-2                     -       w     rw           -          -           -
fl/v1/air/s/air-press/loop                 rw       -     rw           -          -           -
fl/v1/air/s/air-press-2/loop                -      rw     rw           -          -           -
fl/v1/air/m/loop                            -       -     rw           -          -           -
fl/v1/air/s/air-coordinator                 -       -     rw           -          -           -
fl/v1/air/p/air-press                      rw       -     rw           -          -           -
fl/v1/air/p/air-press-2                     -      rw     rw           -          -           -
fl/v1/air/u/0/air-press/7f/m                w       -     rw           -          -           -
fl/v1/air/u/0/air-press/7f/12               w       -     rw           -          -           -
fl/v1/air/u/0/air-press-2/7f/0              -       w     rw           -          -           -
fl/v1/air/x/air-press/12/0                 rw       r     rw           r          -           -
fl/v1/air/x/air-press-2/12/0                r      rw     rw           r          -           -
fl/v1/air/b/cell/air-press                 rw       r     rw           r          -           -
fl/v1/air/b/cell/air-press-2                r      rw     rw           r          -           -

# near misses
fl/v1/air/m                                 -       -     rw           -          -           -
fl/v1/air/m/0a1b                            -       -     rw           -          -           -
fl/v1/air/m/0a1b/12/deeper                  -       -     rw           -          -           -
fl/v1/air/s/air-press/other                 -       -     rw           -          -           -
fl/v1/air/s/air-press/loop/deeper           -       -     rw           -          -           -
fl/v1/air/u/3/air-press/7f/0                -       -     rw           -          -           -
fl/v1/air/u/0/air-press                     -       -     rw           -          -           -
fl/v1/air/u/0/air-press/7f                  -       -     rw           -          -           -
fl/v1/air/u/0/air-press/7f/12/deeper        -       -     rw           -          -           -
fl/v1/air/x/air-press                       -       -     rw           -          -           -
fl/v1/air/x/air-press/12                    -       -     rw           -          -           -
fl/v1/air/x/air-press/12/0/deeper           -       -     rw           -          -           -
fl/v1/air/b/air-press                       -       -     rw           -          -           -
fl/v1/air/b/cell/air-press/deeper           -       -     rw           -          -           -
fl/v1/air/round/deeper                      -       -     rw           -          -           -
fl/v1/air/p/air-press/deeper                -       -     rw           -          -           -
fl/v1/air/p/press                           -       -     rw           -          -           -
fl/v1/air/d/air-press-22                    -       -     rw           -          -           -
fl/v1/air/other                             -       -     rw           -          -           -
fl/v1/round                                 -       -      -           -          -           -
fl/v1/airs/round                            -       -      -           -          -           -
fl/v2/air/round                             -       -      -           -          -           -
air/round                                   -       -      -           -          -           -

# the other federation's names under air
fl/v1/air/d/land-press                      -       -     rw           -          -           -
fl/v1/air/s/land-press                      -       -     rw           -          -           -
fl/v1/air/p/land-press                      -       -     rw           -          -           -
fl/v1/air/u/0/land-press/7f/0               -       -     rw           -          -           -
fl/v1/air/x/land-press/12/0                 r       r     rw           r          -           -
fl/v1/air/b/cell/land-press                 r       r     rw           r          -           -

# the other federation
fl/v1/land/round                            -       -      -           -          r          rw
fl/v1/land/m/0a1b/12                        -       -      -           -          r          rw
fl/v1/land/d/land-press                     -       -      -           -          r          rw
fl/v1/land/s/land-press                     -       -      -           -          w          rw
fl/v1/land/p/land-press                     -       -      -           -         rw          rw
fl/v1/land/p/air-press                      -       -      -           -          -          rw
fl/v1/land/u/0/land-press/7f/0              -       -      -           -          w          rw
fl/v1/land/x/land-press/12/0                -       -      -           -         rw          rw
fl/v1/land/x/air-press/12/0                 -       -      -           -          r          rw
fl/v1/land/b/cell/land-press                -       -      -           -         rw          rw
`)

func parse(text string) []TopicAccess {
	var rows []TopicAccess
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 1+len(Users) {
			panic("acltest: a row has too many or too few columns: " + line)
		}
		rows = append(rows, TopicAccess{fields[0], fields[1:]})
	}
	return rows
}
