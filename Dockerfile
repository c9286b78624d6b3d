# Static binaries: keyserver-operator with the operator ("manager") and the API ("serve"), keyserver-agent, keyserverctl.
#
# The output depends on the compiler: name it by its digest for a reproducible build,
# "make image GO_IMAGE=golang@sha256:...".
ARG GO_IMAGE=golang:1.26
FROM ${GO_IMAGE} AS build
WORKDIR /src
# The tools that build the web console.
RUN apt-get update && apt-get install -y --no-install-recommends nodejs npm && rm -rf /var/lib/apt/lists/*
# The modules first: they change less often than the code.
COPY go.mod go.sum ./
COPY clients/go/go.mod clients/go/go.sum clients/go/
RUN go mod download
COPY . .
RUN make build && \
    # An empty data directory with the right owner, and a directory for temporary files.
    install -d -m 0700 -o 65532 -g 65532 /rootfs/data && \
    install -d -m 1777 /rootfs/tmp && \
    install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ca-certificates.crt && \
    install -D -m 0755 bin/keyserver-agent /rootfs/keyserver-agent && \
    install -D -m 0755 bin/keyserverctl /rootfs/keyserverctl && \
    install -D -m 0755 bin/keyserver-operator /rootfs/keyserver-operator

# The image of the agent alone: docker build --target agent
FROM scratch AS agent
COPY --from=build /rootfs/etc/ /etc/
COPY --from=build /rootfs/keyserver-agent /
USER 65532:65532
ENV PATH=/
ENTRYPOINT ["/keyserver-agent"]

FROM scratch
COPY --from=build /rootfs/ /
# Numeric, so that Kubernetes can check runAsNonRoot.
USER 65532:65532
# With a read-only root file system, mount volumes at /data and /tmp: the programs write nowhere else.
ENV KEYSERVER_DATA_DIR=/data PATH=/
EXPOSE 8443 9443
ENTRYPOINT ["/keyserver-operator"]
