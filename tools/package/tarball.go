package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// writeTarball writes a tarball for systems without a supported package manager.
func writeTarball(p *program, b *binary, out string) error {
	name := p.name + "-" + strings.TrimPrefix(b.version.text, "v") + "-linux-" + b.name
	all := []file{{from: b.path, tar: p.name, mode: 0o755}}
	for _, f := range p.files {
		if f.tar != "" {
			all = append(all, f)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].tar < all[j].tar })

	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, f := range all {
		data, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		h := tar.Header{
			Typeflag: tar.TypeReg, Name: name + "/" + f.tar, Size: int64(len(data)), Mode: int64(f.mode & fs.ModePerm),
			ModTime: b.version.time, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return put(filepath.Join(out, name+".tar.gz"), buf.Bytes())
}

// writeSums writes the checksums of all files in folder dir to the file SHA256SUMS, which sha256sum -c can verify.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir) // ReadDir returns the entries sorted by name.
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return put(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()))
}
