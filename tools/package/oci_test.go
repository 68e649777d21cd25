package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// checkImages checks the archive of a program's container images: its checksums, its platforms, and the configuration
// and the files of each image.
func checkImages(t *testing.T, out, name string, platforms ...string) {
	archive, dir := glob(t, out, name+"-*-oci.tar"), t.TempDir()
	shell(t, dir, "tar -xf "+archive)
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	list, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 1 || !strings.HasPrefix(
		list.Manifests[0].Annotations["org.opencontainers.image.ref.name"], "ghcr.io/fedmesh/"+name+":0.") {
		t.Fatalf("the archive contains %+v, want one index with the image's name", list.Manifests)
	}
	index, err := top.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if list, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list.Manifests {
		got = append(got, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, name, image)
	}
	if !slices.Equal(got, platforms) {
		t.Errorf("images of %v, want %v", got, platforms)
	}
}

// checkImage compares the configuration and the file list of an image with a golden file. The golden file contains only
// one of the time zone files.
func checkImage(t *testing.T, name string, image v1.Image) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c, labels := file.Config, file.Config.Labels
	for _, key := range []string{"version", "revision", "created"} {
		if labels["org.opencontainers.image."+key] == "" {
			t.Errorf("the image has no label %s: %v", key, labels)
		}
		delete(labels, "org.opencontainers.image."+key)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "user %s\nfolder %s\nvolumes %v\nenvironment %v\nentrypoint %v\ncommand %v\n", c.User,
		c.WorkingDir, c.Volumes, c.Env, c.Entrypoint, c.Cmd)
	fmt.Fprintf(&text, "health %v every %v\nlabels %v\n", c.Healthcheck.Test, c.Healthcheck.Interval, labels)
	content := mutate.Extract(image)
	defer content.Close()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(file.Created.Time) {
			t.Errorf("%s is from %v, want the commit's time %v", h.Name, h.ModTime, file.Created)
		}
		var data bytes.Buffer
		if _, err := data.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		zone, isZone := strings.CutPrefix(h.Name, "usr/share/zoneinfo/")
		switch {
		case h.Name == "etc/ssl/certs/ca-certificates.crt":
			if !x509.NewCertPool().AppendCertsFromPEM(data.Bytes()) || bytes.Count(data.Bytes(), []byte("BEGIN")) < 50 {
				t.Errorf("%s contains no list of certificates", h.Name)
			}
		case zone == "Europe/Berlin":
			if _, err := time.LoadLocationFromTZData(zone, data.Bytes()); err != nil {
				t.Error(err)
			}
		case isZone:
			continue
		}
		fmt.Fprintf(&text, "%v %d/%d %s\n", h.FileInfo().Mode(), h.Uid, h.Gid, h.Name)
	}
	golden(t, name+".oci", text.String())
}
