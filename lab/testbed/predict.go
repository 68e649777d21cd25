package testbed

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// predicting is the number of agents that publish forecasts. Prometheus scrapes the first agent directly, and the
// second agent through the coordinator. Each of them has a growing file of rows and a separate broker user for its
// forecasts.
const predicting = 2

// growEvery is the interval at which a new row is added to the file of each predicting agent.
const growEvery = time.Second

func siteUser(id string) string    { return "site-" + id }
func forecastsOf(id string) string { return "site/" + id + "/forecast" }
func (*bed) ownRows(i int) string  { return "rows-" + agentID(i) + ".csv" }

// newRows returns a CSV table with rows whose timestamps cover the last minutes.
func (*bed) newRows(rng *rand.Rand) []byte {
	text := []byte("t,load,speed,oil,wear\n")
	for i := range 100 {
		text = ownRow(text, time.Now().Add(time.Duration(i-100)*growEvery), rng)
	}
	return text
}

// ownRow appends a CSV row with the timestamp at to text.
func ownRow(text []byte, at time.Time, rng *rand.Rand) []byte {
	return plane(fmt.Appendf(text, "%d,", at.Unix()), rng)
}

// predictConfig returns the section "predict" of an agent's configuration.
func (b *bed) predictConfig(id string) string {
	return fmt.Sprintf(`
predict: {keep: 2, refresh: %ds, every: %ds, publish: %s, broker: %s}`, b.stretch(), b.stretch(), forecastsOf(id),
		b.brokerConfig(siteUser(id)))
}

// grow adds a new row to the file of each predicting agent every growEvery, until the testbed stops.
func (b *bed) grow() {
	defer close(b.grown)
	tick := time.NewTicker(growEvery)
	defer tick.Stop()
	for rng := rand.New(rand.NewPCG(3, 4)); ; {
		select {
		case <-b.stopped:
			return
		case at := <-tick.C:
			for i := range predicting {
				if err := appendTo(b.Path(b.ownRows(i)), ownRow(nil, at, rng)); err != nil {
					fmt.Fprintln(os.Stderr, "testbed:", err)
				}
			}
		}
	}
}

func appendTo(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return firstOf(err, f.Close())
}
