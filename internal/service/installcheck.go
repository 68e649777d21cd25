package service

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// CheckPrivileges returns an error if the current user does not have the permission to install or control services.
func CheckPrivileges() error {
	if runtime.GOOS != "windows" && os.Geteuid() != 0 {
		return errors.New("only root may change services: use sudo")
	}
	return nil
}

// checkInstallable returns an error that lists all reasons why an installed service could not run.
func (s *Service) checkInstallable(files map[string]string) error {
	if err := s.checkPrivileges(); err != nil {
		return err
	}
	if path := s.packageFile(); path != "" {
		return fmt.Errorf("%s is already installed by a package (%s), and a unit in /etc would hide the package's "+
			"unit: use the package's unit, with \"systemctl edit %s\" for changes, or remove the package first",
			s.unit.Program, path,
			s.unit.Program)
	}
	if s.installed() {
		if s.serviceFilePath == "" {
			return fmt.Errorf("%s is already installed; to reinstall it, first run: %s service uninstall",
				s.unit.Program, s.unit.Program)
		}
		return fmt.Errorf("%s already exists; to reinstall it, first run: %s service uninstall", s.serviceFilePath,
			s.unit.Program)
	}
	errs := []error{s.checkProgram()}
	var owner *user.User
	if s.unit.User != "" {
		var err error
		if owner, err = user.Lookup(s.unit.User); err != nil {
			errs = append(errs,
				fmt.Errorf("the user %q does not exist; create it with %q, or choose another user with --user",
					s.unit.User,
					"useradd --system --user-group --no-create-home --home-dir /var/lib/"+s.unit.Program+
						" --shell /usr/sbin/nologin "+s.unit.User))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(files)) {
		if path := files[what]; path != "" && !s.isSystemdCredential(path) {
			errs = append(errs, s.checkPathVisible(what, path), checkReadable(what, path, owner))
		}
	}
	if s.unit.StateDir != "" {
		errs = append(errs, s.checkPathVisible("state_dir", s.unit.StateDir),
			checkFolderOwner("state_dir", s.unit.StateDir, owner))
	}
	return errors.Join(errs...)
}

func (s *Service) checkProgram() error {
	info, err := os.Stat(s.unit.Executable)
	if err != nil {
		return fmt.Errorf("the program: %w", err)
	}
	if !info.Mode().IsRegular() || runtime.GOOS != "windows" && info.Mode().Perm()&0o001 == 0 {
		return fmt.Errorf("the program %s (%v) is not a file that every user may execute: run chmod 755 on it",
			s.unit.Executable, info.Mode())
	}
	return s.checkPathVisible("the program", s.unit.Executable)
}

// hiddenFolders lists the folders that the service cannot access. The value is the setting of the systemd unit that
// hides the folder.
var hiddenFolders = map[string]string{
	"/home": "ProtectHome", "/root": "ProtectHome", "/run/user": "ProtectHome", "/tmp": "PrivateTmp",
	"/var/tmp": "PrivateTmp",
}

// checkPathVisible returns an error for a path that the service cannot access.
func (s *Service) checkPathVisible(what, path string) error {
	if s.platformName != systemdPlatform {
		return nil
	}
	for _, folder := range slices.Sorted(maps.Keys(hiddenFolders)) {
		if clean := filepath.Clean(path); clean == folder || strings.HasPrefix(clean, folder+"/") {
			return fmt.Errorf("%s: %s is in %s, which the service cannot access (%s=yes in its unit): move it, for "+
				"example to /usr/local/bin, /etc/%s or /srv",
				what, path, folder, hiddenFolders[folder], s.unit.Program)
		}
	}
	return nil
}

// isSystemdCredential reports whether the path is the source of a systemd credential, which systemd reads and passes to
// the service as a copy.
func (s *Service) isSystemdCredential(path string) bool {
	folder, name := filepath.Split(filepath.Clean(path))
	return s.platformName == systemdPlatform && folder == "/etc/"+s.unit.Program+"/" && slices.Contains(s.unit.Secrets,
		name)
}

// packageFile returns the path of the unit that a distribution package has installed, or "" if no package has installed
// a unit.
func (s *Service) packageFile() string {
	if s.platformName != systemdPlatform {
		return ""
	}
	for _, folder := range s.packageUnitFolders {
		path := filepath.Join(folder, s.unit.Program+".service")
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}
