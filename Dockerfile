# The images of keepwatch-apiserver and of keepwatch. The former is laid out as registry.k8s.io/kube-apiserver, so that either can
# take the other's place: kube-apiserver is in the PATH, and the entry point is Kubernetes' log runner.
# It has no file but these two: time zones and certificate authorities are in the program.
#
#	docker buildx build --platform linux/amd64,linux/arm64 .                # as an ordinary user, with Docker
#	docker buildx build --platform linux/amd64,linux/arm64 --target root .  # for kubeadm
#	make image                                                              # both, without Docker
#
# make evaluates the stages from scratch itself (folder image), with the files that it has
# built here. So these may only copy from the build stages, and set the configuration.

# keepwatch itself, for the charts in deploy/helm, is a stage of its own:
#
#	docker buildx build --platform linux/amd64,linux/arm64 --target keepwatch .    # with Docker
#	make bin/keepwatch-image.tar                                                   # without

FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build-keepwatch
ARG TARGETARCH
ARG VERSION=devel
ARG COMMIT
WORKDIR /src
COPY . .
RUN make bin/linux-$TARGETARCH/keepwatch VERSION=$VERSION COMMIT=$COMMIT

FROM scratch AS keepwatch
ARG TARGETARCH
COPY --from=build-keepwatch --chmod=755 /src/bin/linux-$TARGETARCH/keepwatch /usr/local/bin/keepwatch
ENV PATH=/usr/local/bin
LABEL org.opencontainers.image.title=keepwatch
LABEL org.opencontainers.image.source=https://github.com/keepwatch/keepwatch
LABEL org.opencontainers.image.licenses=Apache-2.0
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/keepwatch"]

FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
ARG TARGETARCH
WORKDIR /src
COPY . .
RUN make bin/linux-$TARGETARCH

# kubeadm's static pods name no user, and their key files are root's.
FROM scratch AS root
ARG TARGETARCH
COPY --from=build --chmod=755 /src/bin/linux-$TARGETARCH/keepwatch-apiserver /usr/local/bin/kube-apiserver
COPY --from=build --chmod=755 /src/bin/linux-$TARGETARCH/kube-log-runner /go-runner
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LABEL org.opencontainers.image.title=keepwatch-apiserver
LABEL org.opencontainers.image.source=https://github.com/keepwatch/keepwatch
LABEL org.opencontainers.image.licenses=Apache-2.0
ENTRYPOINT ["/go-runner"]

FROM root AS nonroot
USER 65532:65532
