package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	context := flag.String("context", ".", "folder with the Dockerfile and the files that its first stage would build")
	archs := flag.String("arch", "amd64,arm64", "architectures, separated by commas")
	out := flag.String("o", "image.tar", "OCI archive to write")
	flag.Parse()
	if err := run(*context, strings.Split(*archs, ","), *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(context string, archs []string, out string, targets []string) error {
	created, err := sourceDate()
	if err != nil {
		return err
	}
	dockerfile, err := os.ReadFile(filepath.Join(context, "Dockerfile"))
	if err != nil {
		return err
	}
	var images []namedIndex
	for _, target := range targets {
		stage, name, ok := strings.Cut(target, "=")
		if !ok {
			return fmt.Errorf("%q: give STAGE=IMAGE", target)
		}
		index, err := index(dockerfile, context, stage, archs, created)
		if err != nil {
			return err
		}
		images = append(images, namedIndex{name, index})
	}
	if err := writeArchive(out, images, created); err != nil {
		return err
	}
	for _, image := range images {
		digest, err := image.index.Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", image.name, digest)
	}
	return nil
}

// sourceDate returns the time of all files: SOURCE_DATE_EPOCH, or 1970.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		text = "0"
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
