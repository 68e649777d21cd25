package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// imageRegistry is the registry and owner in the names of the images.
	imageRegistry = "ghcr.io/fedmesh/"
	// imageUser is the numeric id of the user and group of the programs in containers. imageUser belongs to no user of
	// a host.
	imageUser = 65532
)

// writeImages writes the container images of a service for all its binaries as an OCI archive. The archive contains one
// index with an image for each platform. A target without a platform has no image.
func writeImages(p *program, all []*binary, out string) error {
	if !p.service {
		return nil
	}
	system, err := p.systemLayer(all[0].version.time)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range all {
		if b.oci == "" {
			continue
		}
		platform, err := v1.ParsePlatform(b.oci)
		if err != nil {
			return err
		}
		image, err := p.image(b, platform, system)
		if err != nil {
			return fmt.Errorf("%s: %w", b.oci, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: platform}})
	}
	v := all[0].version
	number := strings.ReplaceAll(strings.TrimPrefix(v.text, "v"), "+", "-") // a tag cannot contain "+"
	name := imageRegistry + p.name + ":" + number
	dir := filepath.Join(p.stage, "oci")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// Docker reads the second annotation; podman and skopeo read the first annotation.
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name})); err != nil {
		return err
	}
	archive, err := archiveFolder(os.DirFS(dir), v.time)
	if err != nil {
		return err
	}
	return put(filepath.Join(out, p.name+"-"+number+"-oci.tar"), archive)
}

// image returns the image of a binary for a platform. The layer system is the same for all platforms. A second layer
// contains the program, its licences and its bill of materials.
func (p *program) image(b *binary, platform *v1.Platform, system v1.Layer) (v1.Image, error) {
	state := "/var/lib/" + p.name
	own, err := p.programLayer(b)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: b.version.time}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1),
		mutate.Addendum{Layer: system, History: v1.History{Created: created,
			CreatedBy: "CA certificates, time zones, state folder"}},
		mutate.Addendum{Layer: own, History: v1.History{Created: created, CreatedBy: p.name + " " + b.version.text}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = created
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
		WorkingDir: state,
		Volumes:    map[string]struct{}{state: {}},
		// Temporary files are in the state folder, because the root file system may be read-only.
		Env:        []string{"PATH=/usr/bin", "TMPDIR=" + state},
		Entrypoint: []string{"/usr/bin/" + p.name},
		Cmd:        []string{"run", "--config", "/etc/" + p.name + "/" + p.name + ".yaml"},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/" + p.name, "status"},
			Interval: 30 * time.Second, Timeout: 10 * time.Second, StartPeriod: 30 * time.Second, Retries: 3},
		Labels: map[string]string{
			"org.opencontainers.image.title":       p.name,
			"org.opencontainers.image.description": about[p.name][0],
			"org.opencontainers.image.version":     strings.TrimPrefix(b.version.text, "v"),
			"org.opencontainers.image.revision":    b.setting("vcs.revision"),
			"org.opencontainers.image.created":     b.version.time.Format(time.RFC3339),
			"org.opencontainers.image.source":      homepage,
			"org.opencontainers.image.licenses":    license,
			"org.opencontainers.image.vendor":      vendor,
		},
	}
	return mutate.ConfigFile(image, config)
}

// systemLayer returns the layer with the files that programs expect from an operating system: CA certificates, time
// zones and the state folder.
func (p *program) systemLayer(at time.Time) (v1.Layer, error) {
	zones, err := timeZones(p.root)
	if err != nil {
		return nil, err
	}
	return layer(at, append(zones,
		layerFile{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates()},
		layerFile{path: "var/lib/" + p.name, mode: fs.ModeDir | 0o700, owner: imageUser}))
}

// programLayer returns the layer with the program, its licences and its bill of materials.
func (p *program) programLayer(b *binary) (v1.Layer, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	bom, err := bomText(p.name, b)
	if err != nil {
		return nil, err
	}
	content := []layerFile{{path: "usr/bin/" + p.name, mode: 0o755, data: program},
		{path: "usr/share/doc/" + p.name + "/sbom.cdx.json", mode: 0o644, data: bom}}
	for _, f := range p.files {
		if f.oci == "" {
			continue
		}
		data, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		content = append(content, layerFile{path: strings.TrimPrefix(f.oci, "/"), mode: f.mode, data: data})
	}
	return layer(b.version.time, content)
}

// certificates returns Mozilla's CA certificates in PEM format. It omits certificates that Mozilla trusts only with
// additional constraints, because PEM files cannot express them.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer cannot fail
		}
	}
	return text.Bytes()
}

// timeZones returns Go's time zone database as the files of /usr/share/zoneinfo.
func timeZones(root string) (all []layerFile, err error) {
	goroot, err := output(goCommand(root, "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		data, err := fs.ReadFile(archive, f.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, layerFile{path: "usr/share/zoneinfo/" + f.Name, mode: 0o644, data: data})
	}
	return all, nil
}

// layerFile is a file or a folder in a layer.
type layerFile struct {
	path  string // path without a leading slash
	mode  fs.FileMode
	owner int // numeric id of the user and the group
	data  []byte
}

// layer returns a layer that contains the files, sorted by path. All files have the same modification time.
func layer(at time.Time, all []layerFile) (v1.Layer, error) {
	slices.SortFunc(all, func(a, b layerFile) int { return cmp.Compare(a.path, b.path) })
	text, err := tarOf(at, all)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
}

// archiveFolder returns a tar archive of all files in a folder.
func archiveFolder(folder fs.FS, at time.Time) ([]byte, error) {
	var all []layerFile
	err := fs.WalkDir(folder, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, path)
		all = append(all, layerFile{path: path, mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return tarOf(at, all)
}

// tarOf returns a tar archive of the files in the given order.
func tarOf(at time.Time, all []layerFile) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range all {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.data)), Mode: int64(f.mode.Perm()),
			Uid: f.owner, Gid: f.owner, ModTime: at, Format: tar.FormatUSTAR}
		if f.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, f.path+"/"
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}
