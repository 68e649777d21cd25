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
	// StandsBy says that another replica leads; Leader is empty while it is not known which.
	StandsBy struct{ Leader string }
	// Leads says that this replica leads, in an epoch. Founded says that the cluster was empty. Took is the time since
	// the one before has stepped down or counts as gone, without what it took this replica to see that.
	Leads struct {
		Epoch   wire.Epoch
		Founded bool
		Took    time.Duration
	}
	// Renewed says that the lease was renewed, by a commit or without one.
	Renewed struct{ Until time.Time }
	// Lost says that this replica does not lead any more.
	Lost struct{ Err error }
	// Failing says that the store has begun to fail, and Mended that it is well again.
	Failing struct {
		What string
		Err  error
	}
	Mended struct{}
)

func (StandsBy) fact() {}
func (Leads) fact()    {}
func (Renewed) fact()  {}
func (Lost) fact()     {}
func (Failing) fact()  {}
func (Mended) fact()   {}
