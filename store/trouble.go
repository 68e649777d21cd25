package store

// Trouble keeps which writes to a state folder fail. Its zero value has none.
type Trouble struct{ failing map[string]struct{} }

// Note takes the result of a write, named by what it is for. It reports whether
// that write has begun to fail, and whether the last one that failed is done.
func (t *Trouble) Note(what string, err error) (began, over bool) {
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
