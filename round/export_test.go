package round

import "fmt"

// Miscounted returns an error if a running count of the roster differs from the number that results from counting all
// of the roster's members.
func (c *CoordinatorMachine) Miscounted() error {
	there, drawn, telling, fresh := 0, 0, 0, 0
	for id, m := range c.roster.memberByAgent {
		if m.isPresent && m.unfitReason == 0 {
			there++
			if m.reportsNewRows {
				telling++
			}
			if m.newRowCount >= c.roster.minNewRows {
				fresh++
			}
			if !c.isSidelined(id) {
				drawn++
			}
		}
		if m.isSidelined != c.isSidelined(id) {
			return fmt.Errorf("%s is marked as sitting out: %t, by the record: %t", id, m.isSidelined,
				c.isSidelined(id))
		}
	}
	if there != c.roster.presentAndFitMembers || drawn != c.roster.eligibleMembers {
		return fmt.Errorf("%d are there and %d may be drawn, the counts are %d and %d", there, drawn,
			c.roster.presentAndFitMembers,
			c.roster.eligibleMembers)
	}
	if telling != c.roster.membersReportingNewRows || fresh != c.roster.membersWithNewRows {
		return fmt.Errorf("%d tell of new rows and %d have enough, the counts are %d and %d", telling, fresh,
			c.roster.membersReportingNewRows, c.roster.membersWithNewRows)
	}
	if c.progress.progressByAgent == nil {
		return nil
	}
	var tallied [participantStateCount]int
	for _, p := range c.progress.progressByAgent {
		tallied[p.state] += p.DrawCount
	}
	if tallied != c.progress.drawCountByState {
		return fmt.Errorf("the draws by state are %v, counted as %v", tallied, c.progress.drawCountByState)
	}
	return nil
}
