//go:build unix

package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// checkReadable returns an error if the permissions of a file do not let the user read it. It ignores access control
// lists and the permissions of parent folders. Problems with these appear only when the service starts.
func checkReadable(what, path string, owner *user.User) error {
	if owner == nil || owner.Uid == "0" {
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) { // validation of the configuration has already rejected missing files
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	belongs, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	groups, err := owner.GroupIds()
	if err != nil {
		groups = []string{owner.Gid}
	}
	mode := info.Mode().Perm()
	switch {
	case strconv.Itoa(int(belongs.Uid)) == owner.Uid:
		ok = mode&0o400 != 0
	case slices.Contains(groups, strconv.Itoa(int(belongs.Gid))):
		ok = mode&0o040 != 0
	default:
		ok = mode&0o004 != 0
	}
	if !ok {
		return fmt.Errorf("%s: the user %s has no read permission for %s (%v): for example, run chgrp %s and chmod "+
			"640 on it", what,
			owner.Username, path, mode, owner.Username)
	}
	return nil
}

// checkFolderOwner returns an error if a folder does not exist or belongs to another user.
func checkFolderOwner(what, path string, owner *user.User) error {
	if owner == nil {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		if belongs, ok := info.Sys().(*syscall.Stat_t); !ok || strconv.Itoa(int(belongs.Uid)) == owner.Uid {
			return nil
		}
	}
	return fmt.Errorf("%s: %s must be a folder of the user %s: create it with %q", what, path, owner.Username,
		fmt.Sprintf("install -d -m 700 -o %s %s", owner.Username, path))
}

// CheckFolderOwnedBySelf returns an error if a folder does not belong to the user of this process. The owner of the
// folder could not read files that this process creates in it.
func CheckFolderOwnedBySelf(what, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	belongs, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(belongs.Uid) == os.Geteuid() {
		return nil
	}
	name := strconv.Itoa(int(belongs.Uid))
	if owner, err := user.LookupId(name); err == nil {
		name = owner.Username
	}
	return fmt.Errorf("%s: %s belongs to the user %s: run this command as that user, for example with sudo -u %s", what,
		path,
		name, name)
}
