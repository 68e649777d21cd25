package testbed

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// predicting is how many agents predict, the first ones: one is scraped itself, one through the coordinator. Each has a
// file of rows of its own, which grows, and is a user of its own at the broker, which is that of the site, too.
const predicting = 2

// growEvery is the time between two of their rows.
const growEvery = time.Second

func siteUser(id string) string    { return "site-" + id }
func forecastsOf(id string) string { return "site/" + id + "/forecast" }
func (*bed) ownRows(i int) string  { return "rows-" + agentID(i) + ".csv" }

// newRows are those of the last minutes.
func (*bed) newRows(rng *rand.Rand) []byte {
	text := []byte("t,load,speed,oil,wear\n")
	for i := range 100 {
		text = ownRow(text, time.Now().Add(time.Duration(i-100)*growEvery), rng)
	}
	return text
}

// ownRow adds a row of a time.
func ownRow(text []byte, at time.Time, rng *rand.Rand) []byte {
	return plane(fmt.Appendf(text, "%d,", at.Unix()), rng)
}

// predictConfig has an agent predict.
func (b *bed) predictConfig(id string) string {
	return fmt.Sprintf(`
predict: {keep: 2, refresh: %ds, every: %ds, publish: %s, broker: %s}`, b.stretch(), b.stretch(), forecastsOf(id),
		b.brokerConfig(siteUser(id)))
}

// grow adds rows to the files until the testbed stops.
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
