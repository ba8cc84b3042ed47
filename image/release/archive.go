package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name string
	mode int64
	text []byte
}

// The folders of an archive.
const (
	manFolder        = "man/man1"
	completionFolder = "completion"
)

func isZip(platform string) bool { return strings.HasPrefix(platform, "windows-") }

// archiveName is the name of a platform's archive.
func archiveName(platform string) string {
	if isZip(platform) {
		return "keepwatch-" + platform + ".zip"
	}
	return "keepwatch-" + platform + ".tar.gz"
}

// program is the name of the program in a platform's archive.
func program(platform string) string {
	if isZip(platform) {
		return "keepwatch.exe"
	}
	return "keepwatch"
}

// writeTarGz writes files of root in their order. The header of gzip has no name and no time.
func writeTarGz(w io.Writer, files []file, date time.Time) error {
	compressed := gzip.NewWriter(w)
	all := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: date,
		}
		if err := all.WriteHeader(header); err != nil {
			return err
		}
		if _, err := all.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(all.Close(), compressed.Close())
}

// writeZip writes files in their order.
func writeZip(w io.Writer, files []file, date time.Time) error {
	all := zip.NewWriter(w)
	for _, f := range files {
		entry, err := all.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date})
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.text); err != nil {
			return err
		}
	}
	return all.Close()
}
