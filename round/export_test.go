package round

import "fmt"

// Miscounted holds the counts, which are kept as members change, against the members.
func (c *Coordinator) Miscounted() error {
	there, drawn, telling, fresh := 0, 0, 0, 0
	for id, m := range c.roster.members {
		if m.present && m.unfit == 0 {
			there++
			if m.tells {
				telling++
			}
			if m.newRows >= c.roster.enough {
				fresh++
			}
			if !c.sitsOut(id) {
				drawn++
			}
		}
		if m.sitsOut != c.sitsOut(id) {
			return fmt.Errorf("%s is marked as sitting out: %t, by the record: %t", id, m.sitsOut, c.sitsOut(id))
		}
	}
	if there != c.roster.there || drawn != c.roster.drawn {
		return fmt.Errorf("%d are there and %d may be drawn, the counts are %d and %d", there, drawn, c.roster.there,
			c.roster.drawn)
	}
	if telling != c.roster.telling || fresh != c.roster.fresh {
		return fmt.Errorf("%d tell of new rows and %d have enough, the counts are %d and %d", telling, fresh,
			c.roster.telling, c.roster.fresh)
	}
	if c.peers == nil {
		return nil
	}
	var tallied [peerStates]int
	for _, p := range c.peers {
		tallied[p.state] += p.Times
	}
	if tallied != c.tallied {
		return fmt.Errorf("the draws by state are %v, counted as %v", tallied, c.tallied)
	}
	return nil
}
