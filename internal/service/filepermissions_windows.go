package service

import "os/user"

// Windows has access control lists instead of file modes, so permissions are not checked. An unreadable file causes an
// error when the service starts.

func checkReadable(string, string, *user.User) error { return nil }

func checkFolderOwner(string, string, *user.User) error { return nil }

// CheckFolderOwnedBySelf always returns nil on Windows.
func CheckFolderOwnedBySelf(string, string) error { return nil }
