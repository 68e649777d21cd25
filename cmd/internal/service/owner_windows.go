package service

import "os/user"

// Windows has its own ways of telling who may read what; a start will tell.

func checkReadable(string, string, *user.User) error { return nil }

func checkOwned(string, string, *user.User) error { return nil }

// CheckOwner refuses nothing here.
func CheckOwner(string, string) error { return nil }
