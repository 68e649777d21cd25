package replica

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Observer hears what a replica does, from several goroutines.
type Observer interface{ ObserveReplica(Fact) }

// Fact is one of the types below.
type Fact interface{ fact() }

// Facts of a replica.
type (
	// StandingBy says that another replica leads; Leader is empty while it is not known which.
	StandingBy struct{ Leader string }
	// LeadershipGained says that this replica leads, in an epoch. Founded says that the cluster was empty. Took is the
	// time since the one before has stepped down or counts as gone, without what it took this replica to see that.
	LeadershipGained struct {
		Epoch            wire.Epoch
		ClusterFounded   bool
		TakeoverDuration time.Duration
	}
	// LeaseRenewed says that the lease was renewed, by a commit or without one.
	LeaseRenewed struct{ Until time.Time }
	// LeadershipLost says that this replica does not lead any more.
	LeadershipLost struct{ Err error }
	// StoreFailing says that the store has begun to fail, and Mended that it is well again.
	StoreFailing struct {
		Operation string
		Err       error
	}
	StoreRecovered struct{}
)

func (StandingBy) fact()       {}
func (LeadershipGained) fact() {}
func (LeaseRenewed) fact()     {}
func (LeadershipLost) fact()   {}
func (StoreFailing) fact()     {}
func (StoreRecovered) fact()   {}
