// Command release makes the files of a release of programs that are built: archives, bills of materials, images,
// charts, the manifest of krew, the formula of Homebrew, notes, provenance, checksums and signatures. `make release`
// runs it.
//
//	go run ./release -repo .. -version v0.1.0-rc.1 -check                      # before the programs are built
//	go run ./release -repo .. -version v0.1.0-rc.1 -o ../bin/release/v0.1.0-rc.1
//
// It reads the programs and images that make writes to bin, and everything else of the files that git tracks. It
// writes to a folder beside -o, which it renames at the end: a failure leaves an earlier release as it was.
//
// The same commit, programs, version and key give the same bytes. All times are the commit's, or SOURCE_DATE_EPOCH.
// Signatures are Ed25519's, which are deterministic, and are in files of their own: without a key the other files have
// the same bytes.
//
// # Files
//
//	main.go        flags; the steps of a release
//	version.go     versions, and what depends on a candidate
//	source.go      the commit, its time and its files
//	output.go      the folder, and the digests of its files; SHA256SUMS
//	archive.go     archives of programs and charts
//	sbom.go        bills of materials
//	chart.go       charts with version, image and Artifact Hub's annotations
//	krew.go        the manifest of the plugin kubectl keepwatch
//	homebrew.go    the formula
//	notes.go       the version's section of CHANGELOG.md
//	provenance.go  what was built of what: in-toto, SLSA
//	sign.go        minisign's format, and DSSE envelopes
package main
