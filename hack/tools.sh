#!/bin/sh
# Usage: hack/tools.sh [NAME...]
#
# Builds the tools that hack/tools pins (all, or the named ones) once per user, and
# links them into bin/.
. "$(dirname "$0")/lib.sh"

need_go
cd "$root/hack/tools"
# The path contains the Go version, because an analyser can only read the output of the Go version that built it.
dir=$(cache_dir)/tools/$(go env GOOS)-$(go env GOARCH)-$(go env GOVERSION | digest go.mod go.sum golangci-lint/*.go -)
mkdir -p "$root/bin"

packages=$(go list tool) || fail "could not list the tools of hack/tools; check the Go module proxy (go env GOPROXY)"
for package in $packages; do
	name=${package##*/}
	case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
	if [ ! -x "$dir/$name" ]; then
		locked "$dir"
	fi
	if [ ! -x "$dir/$name" ]; then # another run may have built it since the last check
		need_disk 2 "$dir" "$(go env GOCACHE)"
		progress "building $name from source" "a few minutes on 2 cores the first time; later runs reuse it" \
			env CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$dir/.tmp.$name" "$package" ||
			fail "could not build $name; if a download failed, check the Go module proxy (go env GOPROXY)"
		mv "$dir/.tmp.$name" "$dir/$name"
	fi
	ln -sfn "$dir/$name" "$root/bin/$name"
done
