package store

import "os"

// PutAside renames a damaged file to its name with ".damaged" behind it, in the
// place of an earlier one, so that the program goes on without it and a person
// can look at it.
func PutAside(path string) error {
	if err := os.Rename(path, path+".damaged"); err != nil {
		return explain("rename", path, err)
	}
	return nil
}
