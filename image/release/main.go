package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository is where the sources and the releases are.
const repository = "https://github.com/keepwatch/keepwatch"

// options are what a releaser chooses.
type options struct {
	repo, version, out string
	platforms, archs   []string // of keepwatch, as linux-amd64; of the images
	registry           string   // of the images, as charts name them
	downloads          string   // the address below which the files will be, without the version
	builder            string   // who builds, as SLSA's builder.id
	keyFile            string
	check              bool
}

func main() {
	var o options
	var platforms, archs string
	flag.StringVar(&o.repo, "repo", ".", "root of the repository")
	flag.StringVar(&o.version, "version", "", "version of the release, vX.Y.Z or vX.Y.Z-rc.N")
	flag.StringVar(&o.out, "o", "", "folder to write, which is replaced")
	flag.StringVar(&platforms, "platforms", "", "platforms of keepwatch, separated by spaces, as linux-amd64")
	flag.StringVar(&archs, "arch", "", "architectures of the images, separated by spaces; none leaves images out")
	flag.StringVar(&o.registry, "registry", "localhost", "registry and path of the images")
	flag.StringVar(&o.downloads, "downloads", repository+"/releases/download", "address of the files, before the version")
	flag.StringVar(&o.builder, "builder", docs+"#the-builder", "builder.id of the provenance")
	flag.StringVar(&o.keyFile, "sign-key", "", "secret key of minisign; $SIGN_PASSWORD decrypts it")
	flag.BoolVar(&o.check, "check", false, "check the version, the tree, the notes and the key only")
	flag.Parse()
	o.platforms, o.archs = strings.Fields(platforms), strings.Fields(archs)
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one release while it is made.
type release struct {
	options
	version version
	source  source
	key     *signingKey // nil: nothing is signed
	notes   []byte
	out     *output
	modules modules
	goBuild string // the version of Go that built the programs

	sumsText, provenanceText []byte // what is signed
}

func run(o options, stdout io.Writer) error {
	r := &release{options: o, modules: modules{}}
	if err := r.check(); err != nil || o.check {
		return err
	}
	if o.out == "" {
		return fmt.Errorf("name the folder to write with -o")
	}
	out, err := newOutput(o.out)
	if err != nil {
		return err
	}
	defer out.discard()
	r.out = out
	for _, step := range []func() error{
		r.programs, r.images, r.charts, r.krew, r.homebrew, r.writeNotes, r.provenance, r.sums, r.sign,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := out.publish(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %d files of commit %s\n", o.out, len(out.digests), r.source.commit)
	if r.key == nil {
		fmt.Fprintln(stdout, "Nothing is signed: SIGN_KEY names no key.")
		return nil
	}
	fmt.Fprintf(stdout, "signed by the key %s\n", r.key.public)
	return nil
}

// check finds what would make the release fail, before anything is built.
func (r *release) check() (err error) {
	if r.version, err = parseVersion(r.options.version); err != nil {
		return err
	}
	if r.source, err = readSource(r.repo, r.version); err != nil {
		return err
	}
	if r.notes, err = readNotes(r.repo, r.version); err != nil {
		return err
	}
	if r.keyFile != "" {
		r.key, err = readKey(r.keyFile, os.Getenv("SIGN_PASSWORD"))
	}
	return err
}

// programs writes an archive and a bill of materials for each platform.
func (r *release) programs() error {
	if len(r.platforms) == 0 {
		return nil
	}
	beside, err := r.beside()
	if err != nil {
		return err
	}
	for _, platform := range r.platforms {
		binary, name := filepath.Join(r.repo, "bin", platform, "keepwatch"), "keepwatch-"+platform
		text, err := os.ReadFile(binary)
		if err != nil {
			return fmt.Errorf("%w: make release builds it", err)
		}
		files := append([]file{{program(platform), 0o755, text}}, beside...)
		if err := r.out.write(archiveName(platform), func(w io.Writer) error {
			if isZip(platform) {
				return writeZip(w, files, r.source.date)
			}
			return writeTarGz(w, files, r.source.date)
		}); err != nil {
			return err
		}
		if err := r.bill(binary, name); err != nil {
			return err
		}
	}
	return nil
}

// beside returns what each archive has beside the program: the license, man pages, and scripts for shells.
func (r *release) beside() ([]file, error) {
	license, err := os.ReadFile(filepath.Join(r.repo, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := []file{{"LICENSE", 0o644, license}}
	for _, folder := range []struct{ built, archived string }{{"man", manFolder}, {"completion", completionFolder}} {
		built := filepath.Join(r.repo, "bin", folder.built)
		entries, err := os.ReadDir(built) // sorted
		if err != nil {
			return nil, fmt.Errorf("%w: make man writes it", err)
		}
		for _, entry := range entries {
			text, err := os.ReadFile(filepath.Join(built, entry.Name()))
			if err != nil {
				return nil, err
			}
			files = append(files, file{path.Join(folder.archived, entry.Name()), 0o644, text})
		}
	}
	return files, nil
}

// images copies the archives with the images, and writes the bills of materials of the programs that only they have.
func (r *release) images() error {
	if len(r.archs) == 0 {
		return nil
	}
	for _, arch := range r.archs {
		for _, program := range []string{"keepwatch-apiserver", "kube-log-runner"} {
			if err := r.bill(filepath.Join(r.repo, "bin", "linux-"+arch, program), program+"-linux-"+arch); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"keepwatch-image.tar", "keepwatch-apiserver-image.tar"} {
		archive, err := os.Open(filepath.Join(r.repo, "bin", name))
		if err != nil {
			return err
		}
		defer archive.Close()
		if err := r.out.write(name, func(w io.Writer) error {
			_, err := io.Copy(w, archive)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// bill writes the bill of materials of a program, and remembers its modules for the provenance.
func (r *release) bill(binary, name string) error {
	if err := r.read(binary); err != nil {
		return err
	}
	return r.out.write(name+".cdx.json", func(w io.Writer) error {
		return writeBill(w, binary, name, r.version.String())
	})
}

func (r *release) writeNotes() error {
	return r.out.write("release-notes.md", func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(r.notes))
		return err
	})
}

// address is where a file of the release will be.
func (r *release) address(name string) string {
	return strings.TrimSuffix(r.downloads, "/") + "/" + r.version.String() + "/" + name
}

// has returns whether the release has programs for an operating system, and for which architectures.
func (r *release) has(system string) (archs []string) {
	for _, platform := range r.platforms {
		if os, arch, _ := strings.Cut(platform, "-"); os == system {
			archs = append(archs, arch)
		}
	}
	slices.Sort(archs)
	return archs
}
