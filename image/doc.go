// Command image builds the images of keepwatch-apiserver and keepwatch from the repository's Dockerfile, without
// Docker.
//
//	go run . -context .. -arch amd64,arm64 -o ../bin/image.tar nonroot=localhost/keepwatch-apiserver:v1.37.2
//
// Each argument names a stage of the Dockerfile and the image that is made of it. The result is one OCI
// archive, which containerd, Podman and skopeo read. Its bytes depend on the Dockerfile, the copied files
// and SOURCE_DATE_EPOCH only.
//
// A stage is evaluated if it begins with scratch or another such stage, copies single files, and sets the
// configuration. Any other instruction is an error. COPY --from names a stage that builds files; they are
// read from the context, at the same path below that stage's WORKDIR.
//
// It is a module of its own, because no other part of Keepwatch needs its libraries: Docker's own
// parser of Dockerfiles, Google's library of images, in the command release those of CycloneDX and minisign, and in the
// command site a parser of Markdown.
//
// # Files
//
//	main.go     flags
//	stage.go    what a stage of the Dockerfile has
//	layer.go    the files as a layer, and an image of it
//	archive.go  the OCI archive
//	release/    a command: the files of a release
//	site/       a command: the documentation's site
package main
