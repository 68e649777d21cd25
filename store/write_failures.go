package store

// WriteFailures contains the writes to a state folder that fail. Its zero value is ready for use.
type WriteFailures struct{ failing map[string]struct{} }

// RecordResult records the result of the write what. began reports that this write has begun to fail, over that no
// write fails any longer.
func (t *WriteFailures) RecordResult(what string, err error) (began, over bool) {
	_, failed := t.failing[what]
	switch {
	case err != nil && !failed:
		if t.failing == nil {
			t.failing = map[string]struct{}{}
		}
		t.failing[what] = struct{}{}
		return true, false
	case err == nil && failed:
		delete(t.failing, what)
		return false, len(t.failing) == 0
	}
	return false, false
}
