package host

import "github.com/fedmesh/fedmesh/observe"

// WriteFailures tracks failing writes to a state folder. Its zero value is ready for use.
type WriteFailures struct{ failing map[string]struct{} }

// ReportWriteResult records the result of a write. It emits StorageFailing when the write starts to fail, and
// StorageRecovered when the last failing write has succeeded.
func (t *WriteFailures) ReportWriteResult(o observe.Observer, purpose string, err error) {
	_, failed := t.failing[purpose]
	switch {
	case err != nil && !failed:
		if t.failing == nil {
			t.failing = map[string]struct{}{}
		}
		t.failing[purpose] = struct{}{}
		o.Observe(StorageFailing{Operation: purpose, Err: err})
	case err == nil && failed:
		if delete(t.failing, purpose); len(t.failing) == 0 {
			o.Observe(StorageRecovered{})
		}
	}
}
